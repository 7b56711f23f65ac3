"""The edge between a driver and a real Ray: daemons that are killed under a study, and signals while Ray starts."""

import os
import signal

import pytest

from launch.testbed.processes import command_of, signal_all
from tests.support.services import GRID, LONG, ONE_WORKER, Home, Records, go_on, wait_for

EXPECTED_SECONDS = 70


def daemons(place: Home, name: str) -> list[int]:
    """Of a home's Ray, the processes of a program."""
    return [pid for pid in place.processes() if command_of(pid).partition(" ")[0].endswith(f"/{name}")]


@pytest.mark.parametrize(
    ("name", "cause", "number"),
    [
        ("gcs_server", "(gcs_server) has ended", signal.SIGTERM),
        pytest.param("raylet", "lost its last node", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_study_whose_ray_is_killed_ends_and_can_be_resumed(
    name: str, cause: str, number: signal.Signals, place: Home
) -> None:
    grid = place.start("--space", place.space("long", GRID, LONG), "--scale", "smoke", "--name", "s", *ONE_WORKER)
    wait_for(lambda: "starting Ray ..." in grid.said, "it says what it waits for")
    workers = place.hold_at("s", 7)
    signal_all(daemons(place, name), signal.SIGKILL)
    grid.ended(1)  # without this end, Tune waits for the raylet for ever
    going_on = f"`python launch/grid.py --resume s --max-concurrent 1 --storage {place.storage}` goes on"
    assert cause in grid.errors
    assert going_on in grid.errors
    assert "within 60 seconds" not in grid.errors  # it is Ray that says so, and ends the process
    records = Records(place.storage, "s")
    assert records.parent().info.status == "KILLED"
    assert "RUNNING" not in records.statuses()
    go_on(workers)
    place.wait_until_empty()

    # Ray has not started when the signal comes, and nothing of it is left.
    grid = place.start("--resume", "s", *ONE_WORKER)
    wait_for(lambda: daemons(place, "gcs_server"), "Ray starts")
    os.kill(grid.process.pid, number)
    grid.ended(130)
    assert f"stopped while Ray was starting; {going_on}" in grid.errors
    assert "stage 1" not in grid.said
    place.wait_until_empty()
