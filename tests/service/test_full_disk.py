"""A disk that is full while a study runs on Ray."""

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.services import GRID, INLINE, LONG, ONE_WORKER, Home, check_undisturbed, go_on, long_alone

EXPECTED_SECONDS = 20


@pytest.fixture
def small_disk(joined: Home) -> Iterator[Path]:
    """The storage folder as a disk of its own, of which little is free."""
    joined.storage.mkdir()
    options = ["-t", "tmpfs", "-o", "size=3m", "tmpfs", str(joined.storage)]
    if subprocess.run(["mount", *options], capture_output=True, check=False).returncode:
        pytest.skip("a small disk is a mount, which needs root")
    try:
        yield joined.storage
    finally:
        joined.end_all()
        subprocess.run(["umount", "-l", str(joined.storage)], check=True)


@pytest.mark.slow
def test_a_full_disk_ends_a_study_that_can_be_resumed(joined: Home, small_disk: Path) -> None:
    grid = joined.start("--space", joined.space("long", GRID, LONG), "--scale", "smoke", "--name", "s", *ONE_WORKER)
    workers = joined.hold_at("s", 7)
    with contextlib.suppress(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
        while True:
            filler.write(bytes(4096))
    go_on(workers)
    grid.ended(1)
    assert "cannot be written" in grid.errors or "No space left on device" in grid.errors
    assert joined.cluster is not None
    assert (
        f"--resume s --max-concurrent 1 --storage {small_disk} --address {joined.cluster.address}` goes on"
        in grid.errors
    )
    (small_disk / "filler").unlink()
    subprocess.run(["mount", "-o", "remount,size=50m", str(small_disk)], check=True)
    joined.run("--resume", "s", *INLINE)
    check_undisturbed(joined.study("s"), long_alone(), small_disk)
