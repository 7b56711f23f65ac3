"""`bench.py chaos`: rounds are drawn by their seed alone, and every kind of harm is seen."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from launch.bench import main
from launch.benchmarks.chaos import drawing
from launch.benchmarks.chaos.drawing import KINDS, draw
from launch.benchmarks.chaos.faults import FAULTS, jump_of
from launch.benchmarks.chaos.verdict import HARMS, Findings, Verdict, is_harmed, rows_of, table
from launch.testbed.processes import ROOT
from pcl.studies.space.search_space import load_space
from tests.support.commands import called

EXPECTED_SECONDS = 15

ROUNDS = [draw(7, number) for number in range(1, 2001)]


def report(batch: int, value: float = 0.5) -> dict[str, object]:
    return {"batch": batch, "by_seed": {"1": {"eval/x": value}}}


CALM = Findings({"a": [report(2), report(4)], "b": [report(2, float("nan"))]}, "a", {"a": "1", "b": "2"}, 0, 0)


def test_a_round_depends_on_its_seed_and_number_alone() -> None:
    assert [draw(7, number) for number in (3, 2, 1)] == ROUNDS[2::-1]
    assert draw(8, 3) != ROUNDS[2]
    once = "import launch.benchmarks.chaos.drawing as d; print([d.draw(7, n) for n in (1, 2, 3)])"
    other = {**os.environ, "PYTHONHASHSEED": "1"}
    said = subprocess.run([sys.executable, "-c", once], cwd=ROOT, env=other, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == str(ROUNDS[:3])


def test_everything_is_drawn_from_the_first_millisecond_on() -> None:
    assert {each.fault for each in ROUNDS} == set(FAULTS)
    assert {each.kind for each in ROUNDS} == set(KINDS)
    on_ray = [each for each in ROUNDS if each.is_ray]
    assert len(ROUNDS) / 2 > len(on_ray) * drawing.RAY_EVERY / 2 > len(ROUNDS) / 4
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
