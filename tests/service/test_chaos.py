"""Ten minutes of `bench.py chaos`, with other faults every day."""

import json
import os
import sys
import time
from pathlib import Path

import pytest

from launch.testbed.processes import DEADLINE_S, started

EXPECTED_SECONDS = 900  # the first to begin


@pytest.mark.slow
def test_ten_minutes_of_faults_harm_no_study(tmp_path: Path) -> None:
    seed = int(time.strftime("%Y%m%d"))  # `bench.py chaos --seed SEED --round K` replays a round on any day
    command = ["launch/bench.py", "chaos", "--seed", str(seed), "--minutes", "10", "--output", tmp_path / "chaos.json"]
    bench = started([sys.executable, *command], tmp_path / "out", os.environ)
    try:
        code = bench.process.wait(600 + 5 * DEADLINE_S)
    finally:
        bench.process.terminate()
        bench.process.wait(DEADLINE_S)
    print(f"seed {seed}\n{bench.said}\n{bench.errors}")
    assert code == 0, bench.said + bench.errors
    rows = json.loads((tmp_path / "chaos.json").read_text())["rows"]
    assert sum(row["rounds"] for row in rows) >= 3
