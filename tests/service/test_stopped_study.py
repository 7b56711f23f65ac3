"""A study with a Ray of its own is interrupted, and killed; resumed, it is as if undisturbed."""

import pytest

from launch.grid import main
from tests.support.commands import called
from tests.support.services import (
    GRID,
    INLINE,
    LONG,
    ONE_WORKER,
    Grid,
    Home,
    Records,
    check_undisturbed,
    go_on,
    long_alone,
    wait_for,
)

EXPECTED_SECONDS = 70


def interrupted(grid: Grid, workers: list[int]) -> Grid:
    """Ctrl-C while workers are held, which go on once the driver knows."""
    grid.interrupt()
    wait_for(lambda: "stopping: " in grid.said, "Ctrl-C is heard")
    go_on(workers)
    return grid


def test_stopped_and_killed_it_can_be_resumed(place: Home) -> None:
    space = place.space("long", GRID, LONG)
    grid = place.start("--space", space, "--scale", "smoke", "--name", "s")
    interrupted(grid, place.hold_at("s", 7)).ended(130)
    assert f"`python launch/grid.py --resume s --storage {place.storage}` goes on" in grid.errors
    records = Records(place.storage, "s")
    assert records.parent().info.status == "KILLED"
    assert "RUNNING" not in records.statuses()
    place.wait_until_empty()

    # The space is another one now: refused before anything is touched.
    before = {file: file.stat().st_mtime_ns for file in place.storage.rglob("*")}
    content = space.read_text()
    space.write_text(content.replace("[2, 4]", "[2, 8]"))
    refused = called("launch/grid.py", main, "--resume", "s", "--storage", str(place.storage))
    assert refused.returncode == 2
    assert "has changed since the study 's' began" in refused.stderr
    assert {file: file.stat().st_mtime_ns for file in place.storage.rglob("*")} == before
    space.write_text(content)

    grid = place.start("--resume", "s", *ONE_WORKER)
    workers = place.hold_at("s", 26)  # some trials have ended, or will soon; others have reports
    grid.kill()
    go_on(workers)
    wait_for(lambda: not place.workers(), "the workers follow their driver")
    left = {trial.key: (trial.rows(), trial.result()) for trial in place.study("s").trials()}
    assert any(rows and not result for rows, result in left.values())
    assert Records(place.storage, "s").parent().info.status == "RUNNING"

    place.run("--resume", *INLINE)
    check_undisturbed(place.study("s"), long_alone(), place.storage)
    for key, (rows, result) in left.items():  # what was published and what had ended stays as it was
        assert place.study("s").trial(key).rows()[: len(rows)] == rows
        assert result in (None, place.study("s").trial(key).result())


@pytest.mark.slow
def test_interrupted_twice_it_ends_at_once_and_can_be_resumed(place: Home) -> None:
    grid = place.start("--space", place.space("long", GRID, LONG), "--scale", "smoke", "--name", "s", *ONE_WORKER)
    place.hold_at("s", 4)  # for good: who is told twice waits for nobody
    interrupted(grid, [])
    grid.interrupt()
    grid.ended(130)
    assert "stopped at once; `python launch/grid.py --resume s" in grid.errors
    assert "written: " not in grid.said
    place.wait_until_empty()
    place.run("--resume", *INLINE)
    check_undisturbed(place.study("s"), long_alone(), place.storage)
