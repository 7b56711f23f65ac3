"""The table that `bench.py search` replays: every cell of a grid of 300, trained on three seeds, with its curves.

    python launch/bench.py search --make --table FILE --limit 36000

trains the cells that a table lacks, one by one; after a stop, the same command continues. The first line says how the
table was made. The grid is the paper's for MCInfoNCE times kappa_pos and the learning rate, at the scale `quick` with
3,200 batches. The table next to this file was made on a GPU that trained cells of one shape as one batch.
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

import torch

from launch.benchmarks import Row
from launch.shared.command import say
from pcl.config.run_config import Plain
from pcl.metrics.names import KAPPA_RANK_CORR
from pcl.storage.installation import command
from pcl.studies.execution.early_stopping import Rungs
from pcl.studies.ledger.folders import Row as Report
from pcl.studies.results.metric_onset import judged_curve, judged_from
from pcl.studies.results.statistics import standard_error
from pcl.studies.space.search_space import Cell, SearchSpace, Stage, load_space
from pcl.training.run import Run

TABLE = Path(__file__).with_name("search.jsonl")
OBJECTIVE = KAPPA_RANK_CORR
_PROFILE, _SCALE = "reference", "quick"
_N_EVALUATIONS = 16
_N_DIGITS = 4


@lru_cache
def wide_space() -> SearchSpace:
    """Return the paper's grid of 12 cells times five kappa_pos and five learning rates."""
    space = load_space("toy_mcinfonce")
    (stage,) = space.stages
    more = {"loss.kappa_pos": (5.0, 10.0, 20.0, 40.0, 80.0), "training.lr": (1e-4, 3e-4, 1e-3, 3e-3, 1e-2)}
    wider = Stage(stage.name, {**stage.axes, **more})
    return dataclasses.replace(space, name="toy_mcinfonce_wide", stages=(wider,), published={})


def cells(n_batches: int, overrides: Mapping[str, Plain]) -> list[Cell]:
    """Return all cells of `wide_space`, in the grid's order."""
    lengths = {"training.n_batches": n_batches, "training.eval_every": max(1, n_batches // _N_EVALUATIONS)}
    return wide_space().cells(0, profile=_PROFILE, scale=_SCALE, overrides={**lengths, **overrides})


def make(
    path: Path, n_batches: int, device: str, limit_s: float, overrides: Mapping[str, Plain] = MappingProxyType({})
) -> list[Row]:
    """Train the cells that a table lacks, until it is complete or `limit_s` seconds have passed; return these cells.

    Raises:
        ValueError: If the table was made with other settings, or a setting does not exist; the table is left as it is.
    """
    started, seeds = time.perf_counter(), wide_space().tuning_seeds
    every = cells(n_batches, overrides)
    known = _begin(path, n_batches, seeds, overrides)
    made: list[Row] = []
    for place, cell in enumerate(every, start=1):
        if _key(cell.varied) in known:
            continue
        if time.perf_counter() - started >= limit_s:
            say(f"the limit of {limit_s:g} s is reached; run the same command again to go on")
            break
        row = _trained(cell, seeds, device)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        made.append(row)
        told = "failed" if (value := final(row)) is None else f"{value:.3f}"
        say(f"cell {place} of {len(every)}: {told}, {row['seconds'][-1]:.0f} s")
    return made


def read(path: Path) -> tuple[Row, list[Row]]:
    """Return the first line and those of the cells; raise a ValueError if the file is missing or not a table."""
    try:
        head, *rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert [head["format"], *(len(row["cell"]) for row in rows)] == [1, *(5 for _ in rows)]
    except FileNotFoundError:
        raise ValueError(f"There is no table {path}; make it with `{command('bench')} search --make`.") from None
    except (ValueError, KeyError, AssertionError, TypeError):
        raise ValueError(f"{path} is no table of `bench.py search --make`; it was left as it is.") from None
    return head, rows


def final(row: Row) -> float | None:
    """Return the mean over the seeds at the end, or None if a seed failed or has no value."""
    values = [curve[-1] for curve in row["curves"]]
    is_whole = not any(row["failed_at"]) and all(map(math.isfinite, values))
    return sum(values) / len(values) if is_whole else None


@dataclass(frozen=True)
class Entry:
    """A cell as a search sees it."""

    cell: dict[str, Plain]  # values by axis
    batches: list[int]  # at which it reports
    seconds: list[float]  # spent training until then
    value: float | None  # at its end; None if a seed fails
    standard_error: float  # of `value`, over the seeds
    judged: list[tuple[tuple[float, float], int]]  # (percent done, value) and batch of each report that ASHA judges

    def stopped_at(self, rungs: Rungs) -> int | None:
        """Return the batch at which ASHA stops it, or None."""
        key, phases = _key(self.cell), str(self.cell["training.phases"])
        return next((batch for point, batch in self.judged if not rungs.goes_on(key, phases, *point)), None)


def read_entries(path: Path) -> list[Entry]:
    """Return the table's cells, in the grid's order; raise a ValueError as `read` does, or if it lacks cells."""
    head, rows = read(path)
    by_key = {_key(row["cell"]): row for row in rows}
    found = [(cell, by_key.get(_key(cell.varied))) for cell in cells(head["n_batches"], head["set"])]
    if lacking := sum(row is None for _, row in found):
        raise ValueError(f"{path} lacks {lacking} of {len(found)} cells; `bench.py search --make` goes on with it.")
    return [_entry(cell, row) for cell, row in found if row is not None]


def threshold_of(entries: list[Entry]) -> float:
    """Return the best value minus its standard error."""
    best = max((entry for entry in entries if entry.value is not None), key=lambda entry: entry.value or 0.0)
    return (best.value or 0.0) - best.standard_error


def _entry(cell: Cell, row: Row) -> Entry:
    """Return a row as a search sees it; if all seeds fail, the cell ends with the last of them."""
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


def _begin(path: Path, n_batches: int, seeds: Sequence[int], overrides: Mapping[str, Plain]) -> set[str]:
    """Write the table's first line, or check it; return the keys of the cells that are there."""
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


def _trained(cell: Cell, seeds: Sequence[int], device: str) -> Row:
    reports = []
    for report in Run(cell.config, seeds, device):
        reports.append(report)
        if len(report.failures) == len(seeds):
            break  # training would raise
    curves = [[report.by_seed[seed][OBJECTIVE] for report in reports] for seed in seeds]
    return {
        "cell": cell.varied,
        "curves": [[round(value, _N_DIGITS) if math.isfinite(value) else 0.0 for value in curve] for curve in curves],
        "failed_at": [next((r.batch for r in reports if seed in r.failures), 0) for seed in seeds],
        "batches": [report.batch for report in reports],
        "seconds": [round(report.seconds, 6) for report in reports],
    }


def _key(varied: dict[str, Plain]) -> str:
    return json.dumps(varied, sort_keys=True)
