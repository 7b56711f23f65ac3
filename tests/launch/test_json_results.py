"""`--json`: the result alone on stdout, numbers as numbers and labels as texts; refused where there is no result."""

import json
from pathlib import Path
from typing import Any

import pytest

from launch import ablate, grid, reproduce, train
from launch.shared.common_flags import rows_of
from pcl.studies.report.paired_table import NUMBERS, Reached, as_csv, compared
from tests.support.fork_server import forked
from tests.support.services import assert_refused
from tests.support.smoke import FAST

MAINS = {"ablate": ablate.main, "grid": grid.main, "reproduce": reproduce.main, "train": train.main}


def printed(tmp_path: Path, *words: str) -> dict[str, Any]:
    """Return what a command prints on stdout, which must be JSON."""
    started = forked(list(words), tmp_path / "out", {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}).ended(0)
    content: dict[str, Any] = json.loads(started.said)
    return content


def test_labels_stay_texts_and_what_is_missing_is_null() -> None:
    base = Reached("1", {4: {"x": 1.0}, 5: {"x": 3.0}})
    lost = Reached("inf", {}, "worker died")
    first, last = rows_of(as_csv(compared([base, lost], "1", ["x"]), "smoke"), NUMBERS)
    assert (first["variant"], first["mean"], first["seeds"], first["difference"]) == ("1", 2.0, 2, None)
    assert (last["variant"], last["mean"], last["seeds"], last["cause"]) == ("inf", None, 0, "worker died")


def test_training_prints_its_results_file(tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    fast = [word for path, value in FAST.items() for word in ("--set", f"{path}={value}")]
    words = ("--scale", "smoke", "--seeds", "4,5", "--set", "task.smoothing=none", *fast, "--checkpoint", str(file))
    content = printed(tmp_path, "launch/train.py", *words, "--json")
    assert content == json.loads(file.with_name("run.pt.json").read_text())
    assert set(content["by_seed"]) == {"4", "5"}


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("train", "--show-config"), "--show-config"),
        (("grid", "--list"), "--list"),
        (("ablate", "--ablation", "loss", "--plan"), "--plan"),
        (("reproduce", "--all", "--address", "ray://h:1"), "--address ray://"),
    ],
)
def test_json_is_refused_where_there_is_no_result(
    words: tuple[str, ...], flag: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *rest = words
    told = f"`--json` prints a result, but `{flag}` has none"
    assert_refused(f"launch/{name}.py", MAINS[name], [*rest, "--json"], told, monkeypatch, capsys)
