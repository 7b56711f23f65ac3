"""`bench.py chaos`: rounds are drawn by their seed alone, and every kind of harm is seen."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from launch.bench import main
from launch.benchmarks.chaos import drawing, faults, rounds
from launch.benchmarks.chaos.contents import digest
from launch.benchmarks.chaos.drawing import KINDS, Round, draw
from launch.benchmarks.chaos.faults import FAULTS, answer_500, damage_file, judge_end, jump_of
from launch.benchmarks.chaos.place import Place, Service
from launch.benchmarks.chaos.verdict import HARMS, Findings, Verdict, is_harmed, rows_of, table
from launch.testbed.processes import ROOT, started
from pcl.studies.space.search_space import load_space
from tests.support.commands import called

EXPECTED_SECONDS = 20

ROUNDS = [draw(7, number) for number in range(1, 2001)]


def report(batch: int, value: float = 0.5) -> dict[str, object]:
    return {"batch": batch, "by_seed": {"1": {"eval/x": value}}}


CALM = Findings({"a": [report(2), report(4)], "b": [report(2, float("nan"))]}, "a", {"a": "1", "b": "2"}, 0, 0)


def test_a_round_depends_on_its_seed_and_number_alone() -> None:
    assert [draw(7, number) for number in (3, 2, 1)] == ROUNDS[2::-1]
    assert replace(draw(8, 3), seed=7) != ROUNDS[2]
    once = "import launch.benchmarks.chaos.drawing as d; print([d.draw(7, n) for n in (1, 2, 3)])"
    other = {**os.environ, "PYTHONHASHSEED": "1"}
    said = subprocess.run([sys.executable, "-c", once], cwd=ROOT, env=other, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(ROUNDS[:3])


def test_everything_is_drawn_from_the_first_millisecond_on() -> None:
    assert {each.fault for each in ROUNDS} == set(FAULTS)
    assert {each.kind for each in ROUNDS} == set(KINDS)
    on_ray = [each for each in ROUNDS if each.is_ray]
    assert 0.8 < len(on_ray) * drawing.RAY_EVERY / len(ROUNDS) < 1.2
    targets = {(each.fault, each.target) for each in on_ray}
    assert {(name, target) for name in ("KILL", "TERM", "INT", "STOP") for target in ("raylet", "gcs_server")} < targets
    assert min(each.moment for each in ROUNDS) < 0.001
    assert max(each.moment for each in ROUNDS if each.fault != drawing.DAMAGED) < 1
    assert all(KINDS[each.kind].is_for_ray for each in on_ray)
    jumps = [jump_of(each.choice) for each in ROUNDS if each.fault == drawing.CLOCK]
    assert min(jumps) < -86400
    assert max(jumps) > 86400


def test_the_spaces_can_be_loaded(tmp_path: Path) -> None:
    for name, kind in KINDS.items():
        (file := tmp_path / f"{name}.py").write_text(kind.space())
        assert len(load_space(str(file)).stages) == len(kind.stages)


HARMED: dict[str, tuple[Findings, str]] = {
    "a lost trial": (replace(CALM, reports={"a": CALM.reports["a"]}, encoders={"a": "1"}), "lost"),
    "a lost report": (replace(CALM, reports={**CALM.reports, "a": [report(4)]}), "lost"),
    "a lost record": (replace(CALM, n_missing=1), "lost"),
    "a doubled report": (replace(CALM, reports={**CALM.reports, "a": [report(2), report(4), report(4)]}), "doubled"),
    "a doubled record": (replace(CALM, n_doubled=1), "doubled"),
    "another number": (replace(CALM, reports={**CALM.reports, "a": [report(2, 0.5000001), report(4)]}), "wrong"),
    "another trial": (replace(CALM, reports={**CALM.reports, "c": []}), "wrong"),
    "another winner": (replace(CALM, best="b"), "wrong"),
    "no winner": (replace(CALM, best=""), "wrong"),
    "another encoder": (replace(CALM, encoders={"a": "1", "b": "3"}), "wrong"),
}


@pytest.mark.parametrize("name", HARMED)
def test_every_harm_is_seen(name: str) -> None:
    found, harm = HARMED[name]
    verdict = Verdict()
    verdict.compare(found, CALM)
    assert [kind for kind in HARMS if getattr(verdict, kind)] == [harm]
    assert not verdict.is_sound


def test_what_is_the_same_is_sound_also_nan() -> None:
    verdict = Verdict()
    verdict.compare(replace(CALM, reports=json.loads(json.dumps(CALM.reports))), CALM)
    assert verdict.is_sound
    assert str(verdict) == "sound"


def test_the_table_counts_rounds_by_fault_and_keeps_what_failed() -> None:
    first, second = (replace(ROUNDS[0], number=n, fault="KILL", target="driver", is_ray=n == 2) for n in (1, 2))
    third = replace(ROUNDS[0], number=3, fault=drawing.CLOCK)
    verdicts = [Verdict(), Verdict(lost=["x", "y"], hung=["z"]), Verdict(left_over=["p"])]
    rows = rows_of(zip([first, second, third], verdicts, strict=True))
    by_event = {row["event"]: row for row in rows}
    assert Counter({"KILL driver": 2, "clock jumps": 1}) == {event: row["rounds"] for event, row in by_event.items()}
    killed = by_event["KILL driver"]
    assert [killed[name] for name in ("on_ray", "lost", "doubled", "wrong", "hung", "left_over")] == [1, 1, 0, 0, 1, 0]
    assert [failure["round"] for failure in killed["failures"]] == [2]
    assert all(map(is_harmed, rows))
    assert not is_harmed(rows_of([(first, Verdict())])[0])
    assert table(rows)[-1].split() == ["all", "3", "1", "1", "0", "0", "1", "1"]


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("verdict", [Verdict(), Verdict(lost=["x"])])
def test_a_late_round_counts_only_if_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, verdict: Verdict, is_late: bool
) -> None:
    @contextmanager
    def chaos() -> Iterator[Any]:
        yield SimpleNamespace(folder=tmp_path, run=lambda _: (verdict, is_late), path_of=lambda _: tmp_path)

    monkeypatch.setattr(rounds, "_chaos", chaos)
    monkeypatch.setattr(rounds, "train_once", int)
    assert len(rounds.run_rounds(7, 60.0, only=1)) == (not is_late or not verdict.is_sound)


def test_stopped_while_it_gets_ready_it_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "mlflow").mkdir()
        raise KeyboardInterrupt

    (folder := tmp_path / "chaos").mkdir()
    monkeypatch.setattr("tempfile.mkdtemp", lambda **_: str(folder))
    monkeypatch.setattr(rounds, "Chaos", interrupted)
    monkeypatch.setattr(rounds, "train_once", int)
    with pytest.raises(KeyboardInterrupt):
        rounds.run_rounds(7, 60.0)
    assert not folder.exists()


def place_of(folder: Path, each: Round, code: str = "pass") -> Place:
    """Return a round's place whose driver has run this Python code."""
    place = Place(each, folder / "round", Service(folder / "mlflow"))
    place.drivers.append(started([sys.executable, "-c", code], place.path / "1.out", os.environ))
    place.drivers[0].process.wait()
    return place


ENDS: dict[str, tuple[str, str, bool, bool]] = {  # the driver's code, the fault, whether it must succeed; soundness
    "well": ("pass", drawing.CLOCK, True, True),
    "with a sentence": ("import sys; sys.exit('the disk is full')", drawing.FULL, False, True),
    "with a sentence, but nothing has happened": ("import sys; sys.exit('no')", drawing.FULL, True, False),
    "with a traceback": ("1 / 0", drawing.FULL, False, False),
    "in a way that nobody foresaw": ("import sys; sys.exit('KeyError (unexpected: x)')", drawing.FAILING, False, False),
    "interrupted before its first line": ("raise KeyboardInterrupt", drawing.INTERRUPT, False, True),
    "interrupted later": ("print('a trial'); raise KeyboardInterrupt", drawing.INTERRUPT, False, False),
}


@pytest.mark.parametrize("name", ENDS)
def test_the_end_of_the_first_driver_is_judged(tmp_path: Path, name: str) -> None:
    code, fault, must_succeed, is_sound = ENDS[name]
    verdict = Verdict()
    judge_end(place_of(tmp_path, replace(ROUNDS[0], fault=fault), code), verdict, must_succeed=must_succeed)
    assert verdict.is_sound == is_sound, verdict


def test_a_driver_that_waits_for_the_end_of_a_fault_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "slept", lambda *_: True)
    for choice, harms in ((0.4, []), (0.6, ["hung"])):
        (folder := tmp_path / str(choice)).mkdir()
        place, verdict = place_of(folder, replace(ROUNDS[0], choice=choice)), Verdict()
        monkeypatch.setattr(place.drivers[0].process, "poll", lambda: None)
        assert answer_500(place, verdict)
        assert [harm for harm in HARMS if getattr(verdict, harm)] == harms


@pytest.mark.parametrize("code", [0, 1, -11])
def test_a_crash_of_verify_on_a_damaged_file_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    place, verdict = place_of(tmp_path, replace(ROUNDS[0], fault=drawing.DAMAGED)), Verdict()
    place.study.path.mkdir()
    (place.study.path / "study.json").write_text("{}")
    monkeypatch.setattr(Place, "verified", lambda _: (code, [], "crashed"))
    assert damage_file(place, verdict)
    assert bool(verdict.wrong) == (code != 0)


def test_unreadable_json_of_verify_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = place_of(tmp_path, ROUNDS[0], "print('[')")
    monkeypatch.setattr(Place, "start", lambda *_: place.drivers[0])
    with pytest.raises(RuntimeError, match="JSON"):
        place.verified()


def test_a_digest_sees_every_bit_the_type_and_the_shape() -> None:
    calm = torch.linspace(0.0, 1.0, 5000)
    other = calm.clone()
    other[2500] = torch.nextafter(other[2500], torch.tensor(1.0))
    tensors = [calm, other, calm.reshape(50, 100), calm.double(), calm.bfloat16(), calm[:0], torch.tensor(1.0)]
    tensors += [torch.tensor([0.0]), torch.tensor([-0.0])]
    assert digest([3, {"a": (calm, 0.1)}]) == digest([3, {"a": (calm.clone(), 0.1)}])
    assert len({digest([3, {"a": (tensor, 0.1)}]) for tensor in tensors}) == len(tensors)


def test_wrong_options_are_refused_with_a_sentence() -> None:
    for words in (["--seed", "x"], ["--minutes", "0"], ["--round", "-1"], ["--seeds", "3"]):
        refused = called("launch/bench.py", main, "chaos", *words)
        assert refused.returncode == 2
        assert len(refused.stderr.splitlines()) == 1


def test_a_clock_jumps_in_its_own_process() -> None:
    code = (
        "import time; from launch.testbed.clock import jump; before = time.time(), time.monotonic();"
        "jump(1e6, 60.0); jump(0.0, -7200.0); print(time.time() - before[0], time.monotonic() - before[1])"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    day, passed = map(float, said.split())
    assert day == pytest.approx(passed - 7200, abs=10)


def test_forked_commands_end_and_answer_as_others_do(tmp_path: Path) -> None:
    """In a process of its own, with one thread: this one has others."""
    script = tmp_path / "script.py"
    script.write_text("import os, sys, time\nprint(os.environ['WHO'], sys.argv[1:])\ntime.sleep(float(sys.argv[1]))\n")
    code = f"""
import signal, time
from pathlib import Path
from launch.testbed.forks import forked, in_fork
place = Path({str(tmp_path)!r})
whole = forked([{str(script)!r}, "0"], place / "whole.out", {{"WHO": "me"}})
assert whole.process.wait() == 0, whole.errors
assert whole.said == "me ['0']\\n", whole.said
for number, code in ((signal.SIGTERM, -15), (signal.SIGKILL, -9), (signal.SIGINT, 130)):
    killed = forked([{str(script)!r}, "900"], place / "killed.out", {{"WHO": "me"}})
    killed.process.send_signal(number)
    assert killed.process.wait() == code, (number, killed.process.returncode)
Path({str(script)!r}).write_text("import sys; sys.exit('a sentence')")
refused = forked([{str(script)!r}], place / "refused.out", {{}})
assert refused.process.wait() == 1
assert refused.errors == "a sentence\\n", refused.errors
assert in_fork(sum, [1, 2]) == 3
try:
    in_fork(int, "x")
except RuntimeError as error:
    print(error)
"""
    began = time.monotonic()
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    assert "ValueError" in said.stdout
    assert time.monotonic() - began < 900
