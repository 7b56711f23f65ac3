"""`launch/reproduce.py --runner inline`: a table is reproduced in this process, on a machine that has no Ray."""

import csv
import subprocess
import sys
from pathlib import Path

from launch.testbed.processes import DEADLINE_S, ROOT

WITHOUT_RAY = """
import runpy, sys
sys.modules["ray"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_table_needs_no_ray(tmp_path: Path) -> None:
    asked = ["--table", "ablation_shared", "--seeds", "4", "--runner", "inline", "--storage", str(tmp_path)]
    fast = ["--scale", "smoke", "--set", "task.smoothing=none", "--set", "task.largest_cosine=0.9"]
    command = [sys.executable, "-c", WITHOUT_RAY, "launch/reproduce.py", *asked, *fast]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "3 are to be trained" in done.stdout
    assert "Ray" not in done.stdout
    folder = tmp_path / "reproduce" / "reference-smoke"
    rows = list(csv.DictReader((folder / "tab-ablation_shared.csv").read_text().splitlines()))
    assert rows
    assert all("[smoke, changed]" in row["ours"] for row in rows)
