"""The parts of a study that need neither Ray nor MLflow: its folders, its identity, selection, plan and outputs."""

import csv
import dataclasses
import fcntl
import json
import math
import os
from pathlib import Path
from typing import IO

import pytest

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.execution.resources import Cost, Resources
from pcl.studies.ledger.folders import Lost, Result, Row, Status, StudyFolder, TrialFolder
from pcl.studies.ledger.opened_study import latest_study, opened
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.report.outputs import table, write_all
from pcl.studies.report.plan import Plan
from pcl.studies.results.selection import Outcome, ranked, winner
from pcl.studies.search.stages import Finding
from pcl.studies.space.search_space import Mode, Objective, SearchSpace, load_space
from pcl.studies.space.trial import Trial

METRIC = "eval/kappa_rank_corr"


def trial(seeds: tuple[int, ...] = (1, 2), **values: float) -> Trial:
    config = RunConfig.of({"loss.kappa_pos": values.get("kappa_pos", 20.0)}, scale="smoke").flat()
    return Trial(config, seeds, "grid", {"loss.kappa_pos": values.get("kappa_pos", 20.0)})


def row(batch: int, time_ms: int = 1, **by_seed: float) -> Row:
    return Row(batch, 8, time_ms, 0.5, {int(seed[1:]): {METRIC: value} for seed, value in by_seed.items()}, {})


def outcome(values: list[float], kappa_pos: float = 20.0, status: Status = Status.FINISHED) -> Outcome:
    by_seed = {seed: {METRIC: value} for seed, value in enumerate(values, start=1)}
    seeds = tuple(by_seed) or (1,)
    return Outcome(trial(seeds, kappa_pos=kappa_pos), Result(status), by_seed)


class TestLedger:
    def test_identity_is_of_everything_that_decides_the_result(self) -> None:
        one = trial()
        assert one.key == trial().key
        assert one.key == dataclasses.replace(one, stage="report", varied={}).key
        others = [trial((1, 3)), trial(kappa_pos=21.0), dataclasses.replace(one, data="other")]
        assert len({one.key, *(other.key for other in others)}) == 4

    def test_the_first_report_at_a_batch_stays(self, tmp_path: Path) -> None:
        """A training that goes on from a checkpoint repeats reports; MLflow has seen the first."""
        folder = TrialFolder(tmp_path / "t")
        folder.begin(trial())
        token = folder.claim()
        folder.publish(row(4, 10, s1=0.1), token)
        folder.publish(row(8, 20, s1=math.nan), token)
        folder.publish(row(4, 30, s1=0.9), token)
        assert [(r.batch, r.time_ms) for r in folder.rows()] == [(4, 10), (8, 20)]
        assert folder.rows()[0].by_seed == {1: {METRIC: 0.1}}
        assert math.isnan(folder.rows()[1].by_seed[1][METRIC])
        assert folder.trial() == trial()

    def test_only_the_last_owner_writes(self, tmp_path: Path) -> None:
        folder = TrialFolder(tmp_path / "t")
        folder.begin(trial())
        first = folder.claim()
        second = folder.claim()
        with pytest.raises(Lost):
            folder.publish(row(4, s1=0.1), first)
        with pytest.raises(Lost):
            folder.end(Result(Status.FINISHED), first)
        assert folder.rows() == []
        assert folder.result() is None
        folder.end(Result(Status.FAILED, Failure(FailureKind.ERROR, "because")), second)
        result = folder.result()
        assert result is not None
        assert (result.status, result.cause) == (Status.FAILED, "because")
        assert not [path for path in (tmp_path / "t").iterdir() if path.name.endswith(".tmp")]


class TestSelection:
    def test_best_first_and_failures_last(self) -> None:
        good, better, failed = outcome([0.2, 0.4]), outcome([0.5, 0.3]), outcome([], status=Status.FAILED)
        half = dataclasses.replace(outcome([0.9, 0.1]), failures={2: Failure(FailureKind.NAN)})
        assert ranked([failed, half, good, better], Objective()) == [better, good, half, failed]
        assert ranked([better, good], Objective(METRIC, Mode.MIN)) == [good, better]
        assert half.mean(METRIC) == 0.9
        assert better.standard_error(METRIC) == pytest.approx(0.1)

    def test_no_winner_without_a_finished_trial(self) -> None:
        assert winner([], Objective()) is None
        assert winner([outcome([], status=Status.FAILED), outcome([math.nan])], Objective()) is None
        assert winner([dataclasses.replace(outcome([0.5]), result=None)], Objective()) is None


class TestStudy:
    SPEC = StudySpec("toy_elk", "abc", "paper", "smoke", {"loss.kappa_pos": "30"})

    def test_round_trip_and_differences(self, tmp_path: Path) -> None:
        folder = StudyFolder(tmp_path / "one")
        with opened(folder, self.SPEC):
            assert StudySpec.read(folder) == self.SPEC
        assert latest_study(Storage(tmp_path)) == "one"
        changed = dataclasses.replace(self.SPEC, scale="quick")
        with pytest.raises(ValueError, match="scale: 'smoke' there, 'quick' here"), opened(folder, changed):
            pass
        with pytest.raises(ValueError, match=r"There is no study 'two' in [^;]*\.$"):
            StudySpec.read(StudyFolder(tmp_path / "two"))
        (tmp_path / "two").mkdir()
        with pytest.raises(ValueError, match=r"There is no study 'two' in .*; its folder has no study\.json\.$"):
            StudySpec.read(StudyFolder(tmp_path / "two"))
        (tmp_path / "two" / "trials").mkdir()
        with pytest.raises(ValueError, match=r"study\.json is missing beside its trials"):
            StudySpec.read(StudyFolder(tmp_path / "two"))
        with pytest.raises(ValueError, match="There is no study"):
            latest_study(Storage(tmp_path / "empty"))

    def test_one_driver_at_a_time(self, tmp_path: Path) -> None:
        folder = StudyFolder(tmp_path / "one")
        with opened(folder, self.SPEC), pytest.raises(ValueError, match="Another process"), opened(folder, self.SPEC):
            pass
        with opened(folder, self.SPEC):
            pass  # free again

    def test_a_study_that_another_driver_began_meanwhile_is_not_mixed_with_its_own(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Both have seen that there is none; the other one had the lock first, and has ended."""
        folder, flock = StudyFolder(tmp_path / "one"), fcntl.flock

        def late(file: IO[str], operation: int) -> None:
            monkeypatch.undo()
            with opened(folder, self.SPEC):
                pass
            flock(file, operation)

        monkeypatch.setattr(fcntl, "flock", late)
        changed = dataclasses.replace(self.SPEC, scale="quick")
        with pytest.raises(ValueError, match="scale: 'smoke' there, 'quick' here"), opened(folder, changed):
            pass
        assert StudySpec.read(folder) == self.SPEC

    def test_the_latest_study_may_lack_its_lock(self, tmp_path: Path) -> None:
        """As a copy without hidden files does."""
        for seconds, name in enumerate(("one", "two", "three")):
            with opened(StudyFolder(tmp_path / name), self.SPEC):
                pass
            for path in (tmp_path / name).iterdir():
                os.utime(path, (seconds, seconds))
        for name in ("three", "one"):
            (tmp_path / name / ".lock").unlink()
            assert latest_study(Storage(tmp_path)) == "three"
        os.utime(tmp_path / "one" / "study.json", (9, 9))
        assert latest_study(Storage(tmp_path)) == "one"

    def test_seeds_that_select_are_not_those_that_report(self) -> None:
        with pytest.raises(ValueError, match="must differ from the report seeds 4, 5, 6, 7, 8, but got 4"):
            dataclasses.replace(self.SPEC, tuning_seeds=(1, 4))


def test_interrupt() -> None:
    interrupt = Interrupt()
    assert not interrupt.is_set()
    interrupt.set(StopReason.TRIAL_FAILED, "first")
    interrupt.set(StopReason.SIGNAL)
    assert interrupt.stop == (StopReason.TRIAL_FAILED, "first")
    assert str(interrupt.stop) == "a trial failed (first)"
    late = Interrupt(time_budget_s=1e-9)
    assert late.is_set()
    assert late.stop == (StopReason.TIME_BUDGET, "")
    assert "time budget" in str(late.stop)


@pytest.fixture
def space() -> SearchSpace:
    return load_space("toy_mcinfonce")


def test_plan_names_counts_and_estimate(tmp_path: Path, space: SearchSpace) -> None:
    spec = StudySpec(space.name, space.fingerprint(), "reference", "paper")
    plan = Plan(space, spec, StudyFolder(tmp_path / "s"), Resources(1, 0), {"CPU": 2.0}, is_finalized=True)
    text = "\n".join(plan.lines([Cost(5.0, 60.0, 1000), Cost(0.0, 60.0, 1000)]))
    assert "12 trials: M {0, 1, 32} x loss.learn_kappa_pos {true, false} x training.phases {mu kappa, joint}" in text
    assert "the best 3 on seeds 4 5 6 7 8" in text
    assert "each on 1 CPU, 2 at once" in text
    # 12 trials, and 3 with 5 seeds instead of 3, a minute each, on 2 slots.
    assert "estimated: 8:47 to 13:11 in all, 1:00 a trial" in text
    text = "\n".join(plan.lines([Cost(5.0, 60.0, 1000), Cost(0.0, 60.0, 1000, slowest=3.0)]))
    assert "estimated: 8:47 to 26:21 in all" in text  # one was measured beside other work
    greedy = dataclasses.replace(plan, resources=Resources(1, 0.25))
    text = "\n".join(greedy.lines([Cost(5.0, 60.0, 1000)]))
    assert "each on 1 CPU and 0.25 GPU, more than the 2 CPU and 0 GPU there are" in text


def test_outputs(tmp_path: Path, space: SearchSpace) -> None:
    spec = StudySpec(space.name, space.fingerprint(), "reference", "smoke", tuning_seeds=(1, 2))
    cells = spec.trials(space, 0, {})
    best = dataclasses.replace(outcome([0.5, 0.7]), trial=cells[10])
    result = Result(Status.FAILED, Failure(FailureKind.LOSS_NOT_FINITE, "nan"))
    failed = dataclasses.replace(outcome([]), trial=cells[0], result=result)
    finding = Finding({"grid": [best, failed]}, best)
    lines = table([best, failed], space)
    assert "0.600 ± 0.100" in lines[1]
    assert "published winner" in lines[1]
    assert "FAILED: the loss is nan" in lines[2]
    folder = StudyFolder(tmp_path)
    files = {path.name: path for path in write_all(folder, space, spec, finding)}
    with files["trials.csv"].open() as file:
        rows = list(csv.DictReader(file))
    assert [(r["seed"], r["status"], r[METRIC]) for r in rows] == [
        ("1", "finished", "0.5"), ("2", "finished", "0.7"), ("1", "failed", ""), ("2", "failed", ""),
    ]  # fmt: skip
    content = json.loads(files["summary.json"].read_text())
    assert content["best"]["mean"] == {METRIC: pytest.approx(0.6)}
    assert content["published_winner"]["M"] == "32"
    assert "training.phases: mu kappa" in files["best.yaml"].read_text()
