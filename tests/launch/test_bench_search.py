"""`bench.py search` on tables whose true results are known: what is counted, what is stopped, what is refused."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from launch.benchmarks import search_table as table
from launch.benchmarks.search import replay

N_BATCHES = 1600


def row_of(cell: dict[str, Any], value: float, spread: float = 0.01) -> dict[str, Any]:
    """A cell that rises to its value while it is judged, and costs by its negatives."""
    first = 0 if cell["training.phases"] == "joint" else N_BATCHES // 2
    batches = list(range(100, N_BATCHES + 1, 100))
    shares = [max(0.0, (batch - first) / (N_BATCHES - first)) for batch in batches]
    curves = [[round(share * (value + shift), 4) for share in shares] for shift in (-spread, 0.0, spread)]
    cost = {"0": 1e-4, "1": 2e-4, "32": 4e-4}[cell["M"]]
    return {
        "cell": cell, "curves": curves, "failed_at": [0, 0, 0], "batches": batches,
        "seconds": [batch * cost for batch in batches],
    }  # fmt: skip


def value_of(cell: dict[str, Any]) -> float:
    """Smooth, with one best cell that is neither the first nor the last."""
    off = math.log10(cell["training.lr"] / 1e-3) ** 2 + math.log2(cell["loss.kappa_pos"] / 20) ** 2
    return 0.9 - 0.1 * off - {"0": 0.1, "1": 0.05, "32": 0.0}[cell["M"]] - 0.05 * (cell["training.phases"] == "joint")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stored") / "table.jsonl"
    table._begin(path, N_BATCHES, table.wide_space().tuning_seeds, {})
    noise = random.Random(0)
    rows = [row_of(cell.varied, value_of(cell.varied) + noise.gauss(0, 0.001)) for cell in table.cells(N_BATCHES, {})]
    with path.open("a") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def test_every_kind_of_search_is_counted(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = table.read_entries(stored)
    goal = table.threshold_of(entries)
    values = [entry.value or 0.0 for entry in entries]
    best = max(values)
    assert goal == pytest.approx(best - 0.01 / math.sqrt(3), abs=1e-3)
    place = next(i for i, value in enumerate(values) if value >= goal)
    rows = {row["search"]: row for row in replay(stored, n_repeats=3)}
    in_order = rows["grid, in its order"]
    assert in_order["trials"] == [place + 1] * 3
    assert in_order["batches"] == [N_BATCHES * (place + 1)] * 3
    seconds = [entry.seconds[-1] for entry in entries]
    assert in_order["percent"][0] == pytest.approx(100 * sum(seconds[: place + 1]) / sum(seconds))
    medians = {name: row["percent"][1] for name, row in rows.items()}
    # On a smooth table a sampler is better than chance, and stopping early cheaper than not, for the same trials.
    assert medians["Optuna (TPE)"] < medians["random"]
    assert rows["random + ASHA"]["trials"] == rows["random"]["trials"]
    assert medians["random + ASHA"] < medians["random"]
    assert all(row["found"] == row["repeats"] for row in rows.values())
    assert "300 cells" in capsys.readouterr().out


def test_no_cell_is_judged_in_its_mu_phase_and_a_failure_has_no_value(stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "table.jsonl"
    head, *rows = [json.loads(line) for line in stored.read_text().splitlines()]
    rows[0]["failed_at"] = [300, 400, 300]
    rows[1]["failed_at"] = [0, 400, 0]
    path.write_text("".join(json.dumps(line) + "\n" for line in [head, *rows]))
    first, second, *rest = table.read_entries(path)
    assert (first.value, first.batches[-1]) == (None, 400)  # all seeds have failed: no batch is trained after that
    assert (second.value, second.batches[-1]) == (None, N_BATCHES)
    for entry in rest:
        batches = [batch for _, batch in entry.judged]
        is_joint = entry.cell["training.phases"] == "joint"
        assert batches[0] == (100 if is_joint else 900)
        assert batches[-1] == N_BATCHES - 100


def test_a_table_that_is_not_there_not_one_or_not_whole_is_refused(stored: Path, tmp_path: Path) -> None:
    lines = stored.read_text().splitlines()
    cases: dict[str, tuple[list[str] | None, str]] = {
        "none": (None, "There is no table"),
        "other": (["{}"], "is no table"),
        "part": (lines[:-3], "lacks 3 of 300"),
    }
    for name, (content, message) in cases.items():
        path = tmp_path / f"{name}.jsonl"
        if content is not None:
            path.write_text("\n".join(content) + "\n")
        with pytest.raises(ValueError, match=message) as error:
            table.read_entries(path)
        assert "\n" not in str(error.value)


def test_the_table_that_is_stored_is_whole() -> None:
    entries = table.read_entries(table.TABLE)
    assert len(entries) == 300
    assert sum(entry.value is not None for entry in entries) == 181  # of the others, a seed fails


def test_a_table_is_made_cell_by_cell_goes_on_and_is_not_mixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {
        "task.smoothing": "none", "task.largest_cosine": 1.0, "task.n_eval": 32, "training.batch_size": 8,
        "loss.n_samples": 2,
    }  # fmt: skip
    first, second = table.cells(16, {})[:2]
    diverging = {**small, "training.kappa_limit": 1e-3}
    few = [replace(first, config=first.config.with_values(small)),
           replace(second, config=second.config.with_values(diverging))]  # fmt: skip
    monkeypatch.setattr(table, "cells", lambda *_: few)
    path = tmp_path / "table.jsonl"
    assert table.make(path, 16, "cpu", limit_s=0.0) == []
    assert "the limit of 0 s is reached" in capsys.readouterr().out
    rows = table.make(path, 16, "cpu", limit_s=1000.0)
    assert table.read(path)[1] == rows
    assert rows[0]["batches"] == list(range(1, 17))
    assert table.final(rows[0]) is not None
    assert (rows[1]["failed_at"], table.final(rows[1])) == ([1, 1, 1], None)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]) + "\n")
    assert [row["cell"] for row in table.make(path, 16, "cpu", limit_s=1000.0)] == [second.varied]
    with pytest.raises(ValueError, match="other settings"):
        table.make(path, 32, "cpu", limit_s=1000.0)
