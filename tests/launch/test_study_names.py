"""How studies are called: what `--name` takes, and what nobody names."""

import sys
import time
from pathlib import Path

import pytest

from launch import ablate, grid
from launch.studies.study_flags import new_study_name
from pcl.studies.ledger.study_names import default_name
from tests.support.services import assert_refused

COMMANDS = {"grid": (grid, ["--space", "toy_elk"]), "ablate": (ablate, ["--ablation", "mc_samples"])}
BODIES = {
    "grid": "launch.studies.grid_command.run_grid", "ablate": "launch.studies.ablate_command.run_ablation",
}  # fmt: skip
BAD = ("", "/", "..", ".hidden", "a/b", "a b", "a\n", "\x00", "caf\u00e9", "-", "x" * 5000, "x" * 201, "artifacts")


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_bad_names_are_refused_in_a_short_sentence_before_any_work(
    command: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module, words = COMMANDS[command]
    monkeypatch.setattr(BODIES[command], lambda _: pytest.fail("it runs"))
    words = [*words, f"--name={name}", "--storage", str(tmp_path / "runs")]
    told = assert_refused(f"launch/{command}.py", module.main, words, "--name: must", monkeypatch, capsys)
    assert len(told) < 250
    words = [*words, "--address", "ray://no-such-host.invalid:1"]  # nor is it sent to another machine
    assert_refused(f"launch/{command}.py", module.main, words, "--name: must", monkeypatch, capsys)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_good_names_are_taken(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, words = COMMANDS[command]
    for name in ("elk", "_2", "a.b-c_d", "x" * 200):
        monkeypatch.setattr(sys, "argv", ["x", *words, "--name", name])
        seen: list[str] = []
        monkeypatch.setattr(BODIES[command], lambda request, seen=seen: seen.append(request.study.name))
        module.main()
        assert seen == [name]


def test_studies_of_one_second_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(["20300101-000000"] * 100 + ["20300101-000001"])
    monkeypatch.setattr(time, "strftime", lambda _: next(times))
    names = [default_name("toy_elk", "toy", "smoke") for _ in range(101)]
    assert len(set(names)) == 101
    assert sorted(names)[-1] == names[-1]
    assert names[0].startswith("toy_elk-smoke-20300101-000000-")


def test_default_names_are_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for what, data in (("toy_elk", "toy"), ("x" * 300, "y" * 300 + "-0123"), ("a.b", "my pets-0123")):
        name = default_name(what, data, "quick")
        assert new_study_name(name) == name
        assert default_name(what, data, "quick") != name
