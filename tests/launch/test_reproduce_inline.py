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


def test_a_table_needs_no_ray_and_may_be_trained_row_by_row(tmp_path: Path) -> None:
    script = tmp_path / "without_ray.py"
    script.write_text(WITHOUT_RAY)
    asked = ["--table", "ablation_shared", "--seeds", "4", "--runner", "inline", "--storage", str(tmp_path)]
    values = {**SMALL, "task.dim_x": SMALL["task.dim"]}  # a shared backbone takes inputs and modes
    small = [
        word for path, value in values.items() if path != "encoder.hidden" for word in ("--set", f"{path}={value}")
    ]
    words = [script, "launch/reproduce.py", *asked, "--scale", "smoke", *small]

    said = forked([*words, "--row", "shared backbone"], tmp_path / "one", os.environ).ended().said
    assert "  1 cells, each once however many tables have it: 1 to be trained" in said
    first, second = ours_of(tmp_path)
    assert set(first) == {"not run [smoke, changed]"}
    assert not any("not run" in ours for ours in second)

    said = forked(words, tmp_path / "both", os.environ).ended().said
    assert "1 to be trained, 1 in MLflow" in said
    assert "Ray" not in said
    first, again = ours_of(tmp_path)
    assert not any("not run" in ours for ours in first)
    assert again == second


def ours_of(storage: Path) -> list[list[str]]:
    """Return what the table has of ours, for each of its two rows."""
    (folder,) = (storage / "reproduce").glob("reference-smoke-*")
    rows = list(csv.DictReader((folder / "tab-ablation_shared.csv").read_text().splitlines()))
    names = ("independent networks", "shared backbone")
    return [[row["ours"] for row in rows if row["row"] == name and row["ours"]] for name in names]
