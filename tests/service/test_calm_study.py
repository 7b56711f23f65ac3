"""The main command with Ray and MLflow: a study of two seeds, the same one known, and with a killed worker."""

import csv
import json
import os
import signal
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.grid import main as grid_command
from launch.train import main as train
from tests.support.clusters import Cluster
from tests.support.commands import called
from tests.support.services import (
    BASE,
    GRID,
    INLINE,
    LONG,
    ONE_WORKER,
    Grid,
    Home,
    alone,
    check_records,
    check_undisturbed,
    home,
    on_disk,
    summary_of,
)

EXPECTED_SECONDS = 50
METRIC = "eval/kappa_rank_corr"


@pytest.fixture(scope="module")
def calm(ray_of_all: Cluster) -> Iterator[tuple[Home, Path, Grid]]:
    """A home with an undisturbed study of two seeds, its space, and what it said."""
    with home(ray_of_all) as found:
        space = found.space("long", GRID, LONG)
        study = ["--space", space, "--scale", "smoke", "--seeds", "1,2", "--name", "calm", *ONE_WORKER]
        grid = found.run(*study, "--json")
        found.wait_until_empty()
        yield found, space, grid


def test_a_study_leaves_its_files_and_records(calm: tuple[Home, Path, Grid], tmp_path: Path) -> None:
    place, space, grid = calm
    folder = place.study("calm")
    reports = alone(space, (1, 2))
    records = check_undisturbed(folder, reports, place.storage)
    assert json.loads(grid.said) == summary_of(folder)
    assert "4/4" in grid.errors
    with (folder.path / "trials.csv").open() as file:
        values = [float(row[METRIC]) for row in csv.DictReader(file)]
    assert sorted(values) == sorted(metrics[METRIC] for rows in reports.values() for metrics in rows[-1].values())
    left = {"best.yaml", "trials.csv", "summary.json", "kappa.png", "mu.png", "coverage.png", "checkpoint.pt"}
    assert records.artifacts(records.parent()) == left
    (winner,) = [r for r in records.runs("trial") if r.data.tags["pcl.trial"] == summary_of(folder)["best"]["key"]]
    assert records.artifacts(winner) == {"config.yaml", "kappa.png", "mu.png", "coverage.png"}
    value = summary_of(folder)["best"]["mean"][METRIC]
    assert records.parent().data.metrics["best/objective"] == pytest.approx(value)

    # The winner's file is a whole configuration, which trains to the same numbers.
    options = ["--seed", "1", "--seed", "2", "--device", "cpu", "--checkpoint", str(tmp_path / "alone.pt")]
    trained = called("launch/train.py", train, "--config", str(folder.path / "best.yaml"), *options)
    assert trained.returncode == 0, trained.stderr
    by_seed = json.loads((tmp_path / "alone.pt.json").read_text())["by_seed"]
    assert statistics.fmean(metrics[METRIC] for metrics in by_seed.values()) == pytest.approx(value)


def test_what_is_known_is_not_run_again(calm: tuple[Home, Path, Grid]) -> None:
    place, space, _ = calm
    grid = place.run("--space", space, "--scale", "smoke", "--seeds", "1,2", "--name", "known", *INLINE)
    assert "4 known" in grid.said
    folder = place.study("known")
    assert summary_of(folder)["best"] == summary_of(place.study("calm"))["best"]
    assert [trial.result().reused_from for trial in folder.trials()] == ["calm"] * 4  # type: ignore[union-attr]
    check_records(folder, place.storage)


def test_a_killed_worker_is_replaced(calm: tuple[Home, Path, Grid]) -> None:
    """With the trials that it trained side by side; under --rerun, which takes nothing from the study before."""
    place, space, _ = calm
    arguments = ["--scale", "smoke", "--seeds", "1,2", "--name", "rerun", "--rerun"]
    grid = place.start("--space", space, *arguments, "--side-by-side", "2", "--max-concurrent", "2")
    (worker,) = place.hold_at("rerun", 7)  # of both trials, neither of which has ended
    os.kill(worker, signal.SIGKILL)
    grid.ended()
    assert grid.said.count("worker died; another goes on") == 2
    assert not any(trial.result().reused_from for trial in place.study("rerun").trials())  # type: ignore[union-attr]
    check_undisturbed(place.study("rerun"), on_disk(place.study("calm")), place.storage)


def test_the_plan_of_a_staged_space_has_the_papers_counts(tmp_path: Path) -> None:
    fast = [word for path in ("task.smoothing", "task.largest_cosine") for word in ("--set", f"{path}={BASE[path]}")]
    words = ["--space", "toy_hib", "--scale", "smoke", "--plan", *fast, "--storage", str(tmp_path / "runs")]
    planned = called("launch/grid.py", grid_command, *words)
    assert planned.returncode == 0, planned.stderr
    assert "stage 1: 12 trials: M {0, 1, 32}" in planned.stdout
    assert "stage 2: 36 trials at the winner's settings: loss.a" in planned.stdout
    assert not (tmp_path / "runs").exists()
