"""The main command with the real thing: real Ray and real MLflow, killed, interrupted, starved, and resumed.

After each, trials on disk and runs in MLflow are counted and compared, to the bit, with the same trials trained alone.
"""

import contextlib
import csv
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.grid import main as grid_command
from launch.train import main as train
from pcl.studies.ledger.folders import Status
from tests.support.commands import called
from tests.support.services import (
    BASE,
    GRID,
    LONG,
    ONE_WORKER,
    Grid,
    Home,
    Records,
    Reports,
    Server,
    alone,
    best_of,
    check_records,
    go_on,
    home,
    on_disk,
    summary_of,
    wait_for,
)

METRIC = "eval/kappa_rank_corr"


@pytest.fixture(scope="module")
def shared() -> Iterator[Home]:
    """For what leaves nothing behind."""
    with home() as found:
        yield found


@pytest.fixture(scope="module")
def expected(shared: Home) -> Reports:
    """The long space's reports when every trial is trained alone."""
    return alone(shared.space("long", GRID, LONG))


def check_undisturbed(place: Home, name: str, expected: Reports, uri: str = "") -> Records:
    """The study has what it would have, had nothing happened to it."""
    folder = place.study(name)
    assert on_disk(folder) == expected
    assert all(trial.result().status is Status.FINISHED for trial in folder.trials())  # type: ignore[union-attr]
    assert summary_of(folder)["best"]["key"] == best_of(expected)
    assert not list(folder.path.rglob("*.tmp"))
    return check_records(folder, uri or place.storage)


@pytest.fixture(scope="module")
def calm() -> Iterator[tuple[Home, Path, Grid]]:
    """A home with an undisturbed study of two seeds, its space, and what it said."""
    with home() as found:
        space = found.space("long", GRID, LONG)
        study = ["--space", space, "--scale", "smoke", "--seeds", "1,2", "--name", "calm", *ONE_WORKER]
        grid = found.run(*study, "--json")
        found.wait_until_empty()
        yield found, space, grid


def test_a_study_leaves_its_files_and_records(calm: tuple[Home, Path, Grid], tmp_path: Path) -> None:
    place, space, grid = calm
    folder = place.study("calm")
    reports = alone(space, (1, 2))
    records = check_undisturbed(place, "calm", reports)
    assert json.loads(grid.said) == summary_of(folder)
    assert "4/4" in grid.errors
    with (folder.path / "trials.csv").open() as file:
        values = [float(row[METRIC]) for row in csv.DictReader(file)]
    assert sorted(values) == sorted(metrics[METRIC] for rows in reports.values() for metrics in rows[-1].values())
    left = {"best.yaml", "trials.csv", "summary.json", "kappa.png", "mu.png", "checkpoint.pt"}
    assert records.artifacts(records.parent()) == left
    (winner,) = [r for r in records.runs("trial") if r.data.tags["pcl.trial"] == summary_of(folder)["best"]["key"]]
    assert records.artifacts(winner) == {"config.yaml", "kappa.png", "mu.png"}
    value = summary_of(folder)["best"]["mean"][METRIC]
    assert records.parent().data.metrics["best/objective"] == pytest.approx(value)

    # The winner's file is a whole configuration, which trains to the same numbers.
    options = ["--seed", "1", "--seed", "2", "--device", "cpu", "--checkpoint", str(tmp_path / "alone.pt")]
    trained = called("launch/train.py", train, "--config", str(folder.path / "best.yaml"), *options)
    assert trained.returncode == 0, trained.stderr
    assert f"{value:.3f}" in trained.stdout


def test_what_is_known_is_not_run_again(calm: tuple[Home, Path, Grid]) -> None:
    place, space, _ = calm
    grid = place.run("--space", space, "--scale", "smoke", "--seeds", "1,2", "--name", "known")
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
    (worker,) = place.hold_at("rerun", 11)  # of both trials, neither of which has ended
    os.kill(worker, signal.SIGKILL)
    grid.ended()
    assert grid.said.count("worker died; another goes on") == 2
    assert not any(trial.result().reused_from for trial in place.study("rerun").trials())  # type: ignore[union-attr]
    check_undisturbed(place, "rerun", on_disk(place.study("calm")))


def interrupted(grid: Grid, workers: list[int]) -> Grid:
    """Ctrl-C while workers are held, which go on once the driver knows."""
    grid.interrupt()
    wait_for(lambda: "stopping: " in grid.said, "Ctrl-C is heard")
    go_on(workers)
    return grid


def test_stopped_and_killed_it_can_be_resumed(place: Home, expected: Reports) -> None:
    space = place.space("long", GRID, LONG)
    grid = place.start("--space", space, "--scale", "smoke", "--name", "s")
    interrupted(grid, place.hold_at("s", 11)).ended(130)
    assert f"`python launch/grid.py --resume s --storage {place.storage}` goes on" in grid.errors
    records = Records(place.storage, "s")
    assert records.parent().info.status == "KILLED"
    assert "RUNNING" not in records.statuses()
    place.wait_until_empty()

    n_reports = place.n_reports("s")
    grid = place.start("--resume", "s", *ONE_WORKER)
    place.hold_at("s", n_reports + 11)  # for good: who is told twice waits for nobody
    interrupted(grid, [])
    grid.interrupt()
    grid.ended(130)
    assert "stopped at once; `python launch/grid.py --resume s" in grid.errors
    assert "written: " not in grid.said
    place.wait_until_empty()

    # The space is another one now: refused before anything is touched.
    before = {file: file.stat().st_mtime_ns for file in place.storage.rglob("*")}
    content = space.read_text()
    space.write_text(content.replace("[2, 4]", "[2, 8]"))
    refused = called("launch/grid.py", grid_command, "--resume", "s", "--storage", str(place.storage))
    assert refused.returncode == 2
    assert "has changed since the study 's' began" in refused.stderr
    assert {file: file.stat().st_mtime_ns for file in place.storage.rglob("*")} == before
    space.write_text(content)

    grid = place.start("--resume", "s")
    workers = place.hold_at("s", 66)  # some trials have ended, or will soon; others have reports
    grid.kill()
    go_on(workers)
    wait_for(lambda: not place.workers(), "the workers follow their driver")
    left = {trial.key: (trial.rows(), trial.result()) for trial in place.study("s").trials()}
    assert any(rows and not result for rows, result in left.values())
    assert Records(place.storage, "s").parent().info.status == "RUNNING"

    place.run("--resume", *ONE_WORKER)
    check_undisturbed(place, "s", expected)
    for key, (rows, result) in left.items():  # what was published and what had ended stays as it was
        assert place.study("s").trial(key).rows()[: len(rows)] == rows
        assert result in (None, place.study("s").trial(key).result())


def test_a_signal_to_the_whole_group_takes_ray_but_no_records(place: Home, expected: Reports) -> None:
    """As of `timeout`, Slurm and systemd: Ray's daemons end at once, and whoever asks them waits for good."""
    grid = place.start("--space", place.space("long", GRID, LONG), "--scale", "smoke", "--name", "s")
    workers = place.hold_at("s", 11)
    os.killpg(grid.process.pid, signal.SIGTERM)
    grid.ended(130)
    assert f"stopped; `python launch/grid.py --resume s --storage {place.storage}` goes on" in grid.errors
    records = Records(place.storage, "s")
    assert records.parent().info.status == "KILLED"
    assert "RUNNING" not in records.statuses()
    go_on(workers)
    place.wait_until_empty()
    place.run("--resume", "s")
    check_undisturbed(place, "s", expected)


def test_a_tracking_server_may_go_and_come_back(place: Home, expected: Reports) -> None:
    server = Server(place.path)
    try:
        server.start()
        space = place.space("long", GRID, LONG)
        grid = place.start("--space", space, "--scale", "smoke", "--name", "s", "--tracking-uri", server.uri)
        workers = place.hold_at("s", 11)
        server.kill()
        before = {trial.key: len(trial.rows()) for trial in place.study("s").trials()}

        def goes_on_without_it() -> bool:
            """Of every trial that runs, the driver knows of a report since: a worker waits until the last is taken."""
            running = [trial for trial in place.study("s").trials() if not trial.result()]
            is_known = all(len(trial.rows()) >= before.get(trial.key, 0) + 2 for trial in running)
            return is_known and place.n_reports("s") > sum(before.values()) + 10

        go_on(workers)
        workers = place.hold_when(goes_on_without_it, "training goes on without the server")
        server.start()  # the rest has to wait until the server has come and gone again
        records = Records(server.uri, "s")
        n_reports = place.n_reports("s")
        wait_for(lambda: sum(len(records.steps(run)) for run in records.runs("trial")) == n_reports, "all is recorded")
        server.kill()
        go_on(workers)
        grid.ended()
        assert "MLflow lacks" in grid.said
        command = f"python launch/grid.py --resume s --storage {place.storage} --tracking-uri {server.uri}"
        assert f"`{command}` sends them" in grid.said
        assert on_disk(place.study("s")) == expected

        server.start()
        place.run(*command.split()[2:])
        check_undisturbed(place, "s", expected, server.uri)
    finally:
        server.kill()


@pytest.fixture
def small_disk(place: Home) -> Iterator[Path]:
    """The storage folder as a disk of its own, of which little is free."""
    place.storage.mkdir()
    options = ["-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place.storage)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("a small disk is a mount, which needs root")
    try:
        yield place.storage
    finally:
        place.end_all()
        subprocess.run(["umount", "-l", str(place.storage)], check=True)


def test_a_full_disk_ends_a_study_that_can_be_resumed(place: Home, small_disk: Path, expected: Reports) -> None:
    grid = place.start("--space", place.space("long", GRID, LONG), "--scale", "smoke", "--name", "s")
    workers = place.hold_at("s", 11)
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    go_on(workers)
    grid.ended(1)
    assert "cannot be written" in grid.errors or "No space left on device" in grid.errors
    assert f"--resume s --storage {small_disk}` goes on" in grid.errors
    (small_disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    place.run("--resume", "s", *ONE_WORKER)
    check_undisturbed(place, "s", expected)


def test_the_plan_of_a_staged_space_has_the_papers_counts(shared: Home) -> None:
    fast = [word for path in ("task.smoothing", "task.largest_cosine") for word in ("--set", f"{path}={BASE[path]}")]
    words = ["--space", "toy_hib", "--scale", "smoke", "--plan", *fast, "--storage", str(shared.storage)]
    planned = called("launch/grid.py", grid_command, *words)
    assert planned.returncode == 0, planned.stderr
    plan = planned.stdout
    assert "stage 1: 12 trials: M {0, 1, 32}" in plan
    assert "stage 2: 36 trials at the winner's settings: loss.a" in plan
    assert not shared.storage.exists()
