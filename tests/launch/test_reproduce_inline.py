"""`launch/reproduce.py --runner inline`: a table is reproduced in this process, on a machine that has no Ray."""

import csv
import os
from pathlib import Path

from launch.testbed.small_network import SMALL
from tests.support.fork_server import forked

WITHOUT_RAY = """
import atexit, runpy, sys
atexit.unregister(sys.modules["ray"].shutdown)
for name in [name for name in sys.modules if name.partition(".")[0] == "ray"]:
    del sys.modules[name]  # which the fork server has; our code, which it imports before, does without
sys.modules["ray"] = None
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_table_needs_no_ray(tmp_path: Path) -> None:
    script = tmp_path / "without_ray.py"
    script.write_text(WITHOUT_RAY)
    asked = ["--table", "ablation_shared", "--seeds", "4", "--runner", "inline", "--storage", str(tmp_path)]
    values = {**SMALL, "task.dim_x": SMALL["task.dim"]}  # a shared backbone takes inputs and modes
    small = [
        word for path, value in values.items() if path != "encoder.hidden" for word in ("--set", f"{path}={value}")
    ]
    words = [script, "launch/reproduce.py", *asked, "--scale", "smoke", *small]
    said = forked(words, tmp_path / "out", os.environ).ended().said
    assert "2 to be trained" in said
    assert "Ray" not in said
    (folder,) = (tmp_path / "reproduce").glob("reference-smoke-*")
    rows = list(csv.DictReader((folder / "tab-ablation_shared.csv").read_text().splitlines()))
    assert rows
    assert all("[smoke, changed]" in row["ours"] for row in rows)
