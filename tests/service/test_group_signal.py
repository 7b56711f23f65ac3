"""A signal to the whole process group, as of `timeout`, Slurm and systemd: it takes Ray, but no records."""

import os
import signal

import pytest

from tests.support.services import GRID, INLINE, LONG, ONE_WORKER, Home, Records, check_undisturbed, go_on, long_alone

EXPECTED_SECONDS = 35


@pytest.mark.slow
def test_a_signal_to_the_whole_group_takes_ray_but_no_records(place: Home) -> None:
    """Ray's daemons end at once, and whoever asks them waits for good."""
    grid = place.start("--space", place.space("long", GRID, LONG), "--scale", "smoke", "--name", "s", *ONE_WORKER)
    workers = place.hold_at("s", 7)
    os.killpg(grid.process.pid, signal.SIGTERM)
    grid.ended(130)
    assert (
        f"stopped; `python launch/grid.py --resume s --max-concurrent 1 --storage {place.storage}` goes on"
        in grid.errors
    )
    records = Records(place.storage, "s")
    assert records.parent().info.status == "KILLED"
    assert "RUNNING" not in records.statuses()
    go_on(workers)
    place.wait_until_empty()
    place.run("--resume", "s", *INLINE)
    check_undisturbed(place.study("s"), long_alone(), place.storage)
