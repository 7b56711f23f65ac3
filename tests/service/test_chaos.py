"""`bench.py chaos`: ten minutes of faults, and that nothing is left when it is stopped."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from launch.testbed.processes import DEADLINE_S, Started, started, wait_for

EXPECTED_SECONDS = 900  # the first to begin

# With a test of test_faults.py: pytest-xdist queues one more test behind a worker's last but one, and a third keeps
# tests of others from waiting there for ten minutes.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("chaos")]


def bench(folder: Path, *words: str) -> Started:
    command = [sys.executable, "launch/bench.py", "chaos", *words, "--output", folder / "chaos.json"]
    return started(command, folder / "out", os.environ)


def test_ten_minutes_of_faults_harm_no_study(tmp_path: Path) -> None:
    seed = int(os.environ.get("PCL_CHAOS_SEED", "1"))  # `bench.py chaos --seed SEED --round K` replays a round
    chaos = bench(tmp_path, "--seed", str(seed), "--minutes", "10")
    try:
        code = chaos.process.wait(600 + 5 * DEADLINE_S)
    finally:
        chaos.process.terminate()
        chaos.process.wait(DEADLINE_S)
    print(f"seed {seed}\n{chaos.said}\n{chaos.errors}")
    assert code == 0, chaos.said + chaos.errors
    rows = json.loads((tmp_path / "chaos.json").read_text())["rows"]
    assert sum(row["rounds"] for row in rows) >= 3


def test_stopped_it_leaves_nothing(tmp_path: Path) -> None:
    chaos = bench(tmp_path, "--minutes", "30")
    try:
        named = re.compile(r"studies in (\S+)\n")
        wait_for(lambda: named.search(chaos.said) or chaos.process.poll() is not None, "its folder")
        found = named.search(chaos.said)
        assert found, chaos.errors
        folder = Path(found[1])
        wait_for(lambda: list(folder.glob("*/1.out")) or chaos.process.poll() is not None, "its first study")
    finally:
        chaos.process.terminate()
    assert chaos.process.wait(DEADLINE_S) == 130, chaos.errors
    assert len(chaos.errors.strip().splitlines()) == 1
    assert not folder.exists()
