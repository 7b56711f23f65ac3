"""The table that `bench.py search` replays: every cell of a grid of 300, trained for three seeds, with its curves.

    python launch/bench.py search --make --table FILE --limit 300

makes it: a line on how it was made, then a line for each cell. It needs torch alone of all that the service needs,
writes the cells of a shape as soon as they are trained, and goes on where it was stopped. The grid is the paper's for
MCInfoNCE times kappa_pos and the learning rate, at the scale `quick` with 3,200 batches, which is meant for a GPU and
takes two minutes there. The first line of what is stored beside this file has its command, hardware and date.
"""

import dataclasses
import datetime
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from launch.shared.command import say

if TYPE_CHECKING:
    from pcl.config.run_config import Plain, RunConfig
    from pcl.studies.execution.early_stopping import Rungs
    from pcl.studies.space.search_space import Cell, SearchSpace

TABLE = Path(__file__).with_name("search.jsonl")
OBJECTIVE = "eval/kappa_rank_corr"
_PROFILE, _SCALE = "reference", "quick"
_N_EVALUATIONS = 16
_N_DIGITS = 4

Row = dict[str, Any]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@lru_cache
def wide_space() -> "SearchSpace":
    """The paper's grid of 12 cells times five kappa_pos and five learning rates."""
    from pcl.studies.space.search_space import Stage, load_space  # noqa: PLC0415  -h answers at once

    space = load_space("toy_mcinfonce")
    (stage,) = space.stages
    axes = {
        **stage.axes,
        "loss.kappa_pos": (5.0, 10.0, 20.0, 40.0, 80.0),
        "training.lr": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2),
    }
    return dataclasses.replace(space, name="toy_mcinfonce_wide", stages=(Stage(stage.name, axes),), published={})


def cells(n_batches: int, overrides: "Mapping[str, Plain]") -> list["Cell"]:
    """All of its cells, in the grid's order."""
    lengths = {"training.n_batches": n_batches, "training.eval_every": max(1, n_batches // _N_EVALUATIONS)}
    return wide_space().cells(0, profile=_PROFILE, scale=_SCALE, overrides={**lengths, **overrides})


def make(
    path: Path, n_batches: int, device: str, limit_s: float, overrides: "Mapping[str, Plain]" = _NOTHING
) -> list[Row]:
    """Train what the table lacks, one shape after the other, until all is there or the time is up.

    Args:
        path: The table.
        n_batches: Of each cell.
        device: cpu or cuda.
        limit_s: No shape is begun that would likely end after so many seconds, and one that takes longer is left.
        overrides: Settings of all cells, by dotted path.

    Returns:
        The cells that were trained.

    Raises:
        ValueError: If the table was made with other settings, or a setting is none; the table is left as it is.
    """
    started = time.perf_counter()
    seeds = wide_space().tuning_seeds
    shapes: dict[RunConfig, list[Cell]] = {}
    for cell in cells(n_batches, overrides):
        shapes.setdefault(_shape(cell), []).append(cell)
    known = _begin(path, n_batches, seeds, overrides)
    made: list[Row] = []
    longest = 0.0
    for place, group in enumerate(shapes.values(), start=1):
        left = [cell for cell in group if _key(cell.varied) not in known]
        if not left:
            continue
        begun = time.perf_counter()
        if begun - started + longest > limit_s:
            say(f"the limit of {limit_s:g} s is near; run the same command again to go on")
            break
        what = f"shape {place} of {len(shapes)}: {len(left)} cells x {len(seeds)} seeds"
        rows = _trained(left, seeds, device, started + limit_s)
        if rows is None:
            say(f"{what}: not done within {limit_s:g} s, and left; raise `--limit` or lower `--batches`")
            break
        with path.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
        made += rows
        longest = max(longest, time.perf_counter() - begun)
        values = [value for row in rows if (value := final(row)) is not None]
        best = f"best {max(values):.3f}" if values else "none finished"
        ms = 1e3 * rows[0]["seconds"][-1] * len(rows) / n_batches
        say(f"{what}: {time.perf_counter() - begun:.0f} s, {ms:.2f} ms a batch of all, {best}")
    return made


def read(path: Path) -> tuple[Row, list[Row]]:
    """The first line, and those of the cells.

    Raises:
        ValueError: If there is no table, or it is not one.
    """
    try:
        head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [head["format"], *(len(row["cell"]) for row in rows)] == [1, *(5 for _ in rows)]
    except FileNotFoundError:
        raise ValueError(f"There is no table {path}; make it with `python launch/bench.py search --make`.") from None
    except (ValueError, KeyError, AssertionError, TypeError):
        raise ValueError(f"{path} is no table of `bench.py search --make`; it was left as it is.") from None
    return head, rows


def final(row: Row) -> float | None:
    """The mean over the seeds at the end; nothing where a seed failed or has no value."""
    values = [curve[-1] for curve in row["curves"]]
    is_whole = not any(row["failed_at"]) and all(map(math.isfinite, values))
    return sum(values) / len(values) if is_whole else None


@dataclass(frozen=True)
class Entry:
    """A cell as a search meets it.

    Attributes:
        cell: Its values by axis.
        batches: At which it reports.
        seconds: Spent training until then.
        value: At its end; nothing where a seed fails.
        standard_error: Of that, over the seeds.
        judged: Percent done and value of every report at which ASHA judges it, and the report's batch.
    """

    cell: "dict[str, Plain]"
    batches: list[int]
    seconds: list[float]
    value: float | None
    standard_error: float
    judged: "list[tuple[tuple[float, float], int]]"

    def stopped_at(self, rungs: "Rungs") -> int | None:
        """The batch at which ASHA stops it, if it does."""
        key = _key(self.cell)
        phases = str(self.cell["training.phases"])
        return next((batch for point, batch in self.judged if not rungs.goes_on(key, phases, *point)), None)


def read_entries(path: Path) -> list[Entry]:
    """The table's cells, in the grid's order.

    Raises:
        ValueError: If there is no table, it is not one, or it lacks cells.
    """
    head, rows = read(path)
    by_key = {_key(row["cell"]): row for row in rows}
    found = [(cell, by_key.get(_key(cell.varied))) for cell in cells(head["n_batches"], head["set"])]
    if lacking := sum(row is None for _, row in found):
        raise ValueError(f"{path} lacks {lacking} of {len(found)} cells; `bench.py search --make` goes on with it.")
    return [_entry(cell, row) for cell, row in found if row is not None]


def threshold_of(entries: list[Entry]) -> float:
    """The best value less its standard error."""
    best = max((entry for entry in entries if entry.value is not None), key=lambda entry: entry.value or 0.0)
    return (best.value or 0.0) - best.standard_error


def _entry(cell: "Cell", row: Row) -> Entry:
    """A row as a search meets it: a cell all of whose seeds fail ends with the last of them."""
    from pcl.studies.ledger.folders import Row as Report  # noqa: PLC0415
    from pcl.studies.results.metric_onset import judged_curve, judged_from  # noqa: PLC0415
    from pcl.studies.results.selection import standard_error  # noqa: PLC0415

    n_batches = cell.config.training.n_batches
    end = max(row["failed_at"]) if all(row["failed_at"]) else n_batches
    batches = [batch for batch in row["batches"] if batch <= end]
    reports = [
        Report(batch, n_batches, 0, row["seconds"][i], {s: {OBJECTIVE: c[i]} for s, c in enumerate(row["curves"])}, {})
        for i, batch in enumerate(batches)
    ]
    curve = judged_curve(reports, cell.config, OBJECTIVE)
    judged = [batch for batch in batches if judged_from(cell.config, OBJECTIVE) < batch < n_batches]
    return Entry(
        row["cell"], batches, row["seconds"][: len(batches)], final(row),
        standard_error([seed[-1] for seed in row["curves"]]), list(zip(curve, judged, strict=True)),
    )  # fmt: skip


def _begin(path: Path, n_batches: int, seeds: Sequence[int], overrides: "Mapping[str, Plain]") -> set[str]:
    """Make the table's first line, or check it; the cells that are there."""
    import torch  # noqa: PLC0415

    settings = {
        "format": 1, "profile": _PROFILE, "scale": _SCALE, "objective": OBJECTIVE, "n_batches": n_batches,
        "seeds": list(seeds), "set": dict(overrides), "space": wide_space().fingerprint(),
    }  # fmt: skip
    if path.exists():
        head, rows = read(path)
        if any(head[name] != value for name, value in settings.items()):
            raise ValueError(f"{path} was made with other settings; give another `--table`, or delete it.")
        return {_key(row["cell"]) for row in rows}
    chosen = [f"--set {path}={value}" for path, value in overrides.items()]
    made = {
        "command": " ".join(["python launch/bench.py search --make --batches", str(n_batches), *chosen]),
        "hardware": torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU",
        "torch": torch.__version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**settings, **made}) + "\n")
    return set()


def _trained(group: list["Cell"], seeds: Sequence[int], device: str, deadline: float) -> list[Row] | None:
    """Rows of cells of one shape; nothing if the time was up before they were done."""
    import torch  # noqa: PLC0415

    from launch.benchmarks.search_batched import train  # noqa: PLC0415

    rows: list[Row] = [
        {"cell": cell.varied, "curves": [[] for _ in seeds], "failed_at": [0 for _ in seeds], "batches": [],
         "seconds": []}
        for cell in group
    ]  # fmt: skip
    for moment in train([cell.config for cell in group], seeds, torch.device(device)):
        for row, corrs, has_failed in zip(rows, moment.kappa_rank_corr, moment.has_failed, strict=True):
            row["batches"].append(moment.batch)
            row["seconds"].append(round(moment.seconds / len(group), 6))
            for i, corr in enumerate(corrs):
                row["curves"][i].append(round(corr, _N_DIGITS) if math.isfinite(corr) else 0.0)
                row["failed_at"][i] = row["failed_at"][i] or (moment.batch if has_failed[i] else 0)
        if time.perf_counter() > deadline and moment.batch < group[0].config.training.n_batches:
            return None
    return rows


def _shape(cell: "Cell") -> "RunConfig":
    from launch.benchmarks.search_batched import shape_of  # noqa: PLC0415

    return shape_of(cell.config)


def _key(varied: "dict[str, Plain]") -> str:
    return json.dumps(varied, sort_keys=True)
