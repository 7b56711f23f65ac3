"""ASHA: who is stopped, and what a trial that was stopped counts for."""

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import optuna
import pytest
from ray.tune.schedulers import ASHAScheduler

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.storage.mirror import Mirrored
from pcl.studies.execution.early_stopping import EarlyStopping, Rungs
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.tune_adapter import Halving
from pcl.studies.execution.worker import Job
from pcl.studies.ledger.folders import Lost, Result, Row, Status, StudyFolder, TrialFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.report.outputs import table
from pcl.studies.results.selection import Outcome, ranked, winner
from pcl.studies.search.optuna_study import DATABASE
from pcl.studies.search.proposals import Proposer
from pcl.studies.space.search_method import OPTUNA, Method
from pcl.studies.space.search_space import Mode, Objective, Stage, log_uniform
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.run_content import seed_ending, trial_ending
from pcl.studies.tracking.tags import RunState
from tests.support.spaces import make

KAPPA, MU, LOSS = "eval/kappa_rank_corr", "eval/mu_mae", "train/loss"
STOP, CONTINUE = Halving.STOP, Halving.CONTINUE


def config_of(phases: str = "mu kappa", n_batches: int = 100, every: int = 10, **more: Any) -> RunConfig:
    lengths = {"training.phases": phases, "training.n_batches": n_batches, "training.eval_every": every}
    return RunConfig.of({**lengths, **more}, profile="reference", scale="smoke")


def rows_of(values: list[float], every: int = 10, n_batches: int = 100, metric: str = KAPPA) -> list[Row]:
    return [
        Row(every * i, n_batches, i, 0.1 * i, {1: {metric: value, LOSS: 1.0}}, {}) for i, value in enumerate(values, 1)
    ]


@pytest.mark.parametrize("mode", Mode)
def test_of_nine_the_best_third_goes_on_at_a_rung(mode: Mode) -> None:
    sign = 1.0 if mode is Mode.MAX else -1.0
    rungs = Rungs(Objective(KAPPA, mode))
    assert all(rungs.goes_on(f"early {i}", "joint", 5.0, 0.0) for i in range(9))  # before the first rung
    for i in range(9):
        rungs.goes_on(str(i), "joint", 12.0, sign * i)
    assert not rungs.goes_on("worse", "joint", 12.0, sign * 5.0)
    assert rungs.goes_on("better", "joint", 12.0, sign * 8.5)
    assert rungs.goes_on("better", "joint", 20.0, sign * -9.0)  # between rungs nothing is asked
    assert rungs.goes_on("better", "joint", 34.0, sign * -9.0)  # the first at a rung has no one beside it
    assert not rungs.goes_on("8", "joint", 34.0, sign * -10.0)
    assert rungs.goes_on("other phases", "mu kappa", 12.0, sign * -10.0)


@pytest.mark.parametrize("mode", Mode)
def test_the_rule_is_that_of_rays_scheduler(mode: Mode) -> None:
    """Decision by decision, over trials whose reports come in any order."""
    asha = ASHAScheduler(
        time_attr="percent", metric="value", mode=mode.value, max_t=100, grace_period=100 / 9, reduction_factor=3,
        stop_last_trials=False,
    )  # fmt: skip
    rungs, draw, nobody = Rungs(Objective(KAPPA, mode)), random.Random(0), cast("Any", None)
    trials: list[Any] = [SimpleNamespace(trial_id=str(i)) for i in range(40)]
    for trial in trials:
        asha.on_trial_add(nobody, trial)
    done, decisions = dict.fromkeys(range(40), 0.0), []
    while len(done):
        index = draw.choice(list(done))
        done[index] += draw.choice([4.0, 100 / 9, 15.0])
        value = round(draw.random(), 1)  # with equal values among them
        theirs = asha.on_trial_result(nobody, trials[index], {"percent": done[index], "value": value})
        assert rungs.goes_on(str(index), "joint", done[index], value) == (theirs != STOP)
        decisions.append(theirs)
        if theirs == STOP or done[index] > 80:
            del done[index]
    assert {STOP, CONTINUE} <= set(decisions)


def halving(study: StudyFolder, stage: str = "grid", interrupt: Interrupt | None = None) -> Halving:
    return Halving(EarlyStopping(study, stage, Objective(KAPPA), interrupt or Interrupt()))


class Driven:
    """Trials of a stage as Tune drives them, without Ray."""

    def __init__(self, path: Path, phases: str = "mu kappa") -> None:
        self.folder, self.phases = StudyFolder(path), phases
        self.new_driver()

    def new_driver(self) -> None:
        self.scheduler = halving(self.folder)

    def trial(self, name: int) -> Trial:
        config = config_of(self.phases, **{"loss.kappa_pos": 10.0 + name})
        return Trial(config.flat(), (1,), "grid", {"loss.kappa_pos": 10.0 + name})

    def train(self, name: int, values: list[float], start: int = 0) -> tuple[str, TrialFolder]:
        """Publish reports until told to stop; the last decision, and the folder."""
        trial = self.trial(name)
        folder = self.folder.trial(trial.key)
        folder.begin(trial)
        token = folder.claim()
        ours: Any = SimpleNamespace(config={"jobs": [{"folder": str(folder.path)}]})
        for row in rows_of(values)[start:]:
            folder.publish(row, token)
            if self.scheduler.on_trial_result(None, ours, {"batch": row.batch, "n_batches": 100}) == STOP:
                return STOP, folder
        if len(values) == 10:
            folder.end(Result(Status.FINISHED), token)
        return CONTINUE, folder


def test_a_kappa_metric_is_never_judged_in_the_mu_phase_nor_at_the_end(tmp_path: Path) -> None:
    stage = Driven(tmp_path)
    for i in range(4):
        assert stage.train(i, [0.9] * 10)[0] == CONTINUE
    decision, folder = stage.train(5, [-1.0] * 5)  # all of the mu phase, and as bad as can be
    assert decision == CONTINUE
    assert folder.result() is None
    decision, folder = stage.train(5, [-1.0] * 10, start=5)
    result = folder.result()
    assert decision == STOP
    assert result is not None
    assert (result.status, result.cause) == (Status.STOPPED, "stopped early by ASHA at batch 60 of 100")
    decision, folder = stage.train(6, [0.9] * 9 + [-1.0])  # bad at its very end
    assert decision == CONTINUE


def test_a_trial_in_a_store_is_stopped_from_afar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Driver and worker have copies of their own."""
    monkeypatch.setenv("PCL_CACHE", str(tmp_path / "worker"))
    uri = (tmp_path / "store").as_uri()
    stage = Driven(tmp_path / "driver")
    stage.folder.mirror = Mirrored(tmp_path / "driver", uri)
    for i in range(4):
        stage.train(i, [0.9] * 10)
    trial = stage.trial(5)
    job = Job(trial, str(stage.folder.trial(trial.key).path), KAPPA, store=stage.folder.trial(trial.key).mirror.uri)
    ours: Any = SimpleNamespace(config={"jobs": [job.as_config()]})
    with job.opened() as worker:
        worker.begin(trial)
        token = worker.claim()
        for row in rows_of([-1.0] * 6):
            worker.publish(row, token)
            decision = stage.scheduler.on_trial_result(None, ours, {"batch": row.batch, "n_batches": 100})
        assert decision == STOP
        with pytest.raises(Lost):
            worker.publish(rows_of([-1.0] * 7)[-1], token)
    assert not list((tmp_path / "worker").iterdir())
    result = stage.folder.trial(trial.key).result()
    assert result is not None
    assert result.status is Status.STOPPED


def test_whoever_goes_on_writing_has_lost_the_trial(tmp_path: Path) -> None:
    stage = Driven(tmp_path)
    stage.train(0, [0.9] * 10)
    _, folder = stage.train(1, [0.1] * 10)
    owner = (folder.path / "owner").read_text()
    assert len(folder.rows()) == 6
    stage.train(1, [0.1] * 6)
    assert (folder.path / "owner").read_text() != owner


def test_a_new_driver_knows_the_rungs(tmp_path: Path) -> None:
    stage = Driven(tmp_path, "joint")
    stage.train(0, [0.5] * 10)
    stage.train(1, [0.8] * 3)  # when the driver is killed
    stage.new_driver()
    assert stage.train(2, [0.3] * 10)[0] == STOP
    assert stage.train(1, [0.8] * 10, start=3)[0] == CONTINUE
    stage.scheduler = halving(stage.folder, "another stage")
    assert stage.train(3, [0.1] * 10)[0] == CONTINUE  # stages are not compared


def test_files_that_cannot_be_written_end_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage, interrupt = Driven(tmp_path), Interrupt()
    stage.scheduler = halving(stage.folder, interrupt=interrupt)
    stage.train(0, [0.9] * 10)

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(TrialFolder, "close", fail)
    stage.train(1, [0.1] * 10)
    assert str(interrupt.stop) == "a trial's files cannot be written (disk full)"


def stopped(value: float, name: str = "s") -> Outcome:
    result = Result(Status.STOPPED, Failure(FailureKind.STOPPED_EARLY, "by ASHA at batch 60 of 100"))
    return Outcome(Trial({"i": name}, (1,), "grid", {"i": name}), result, {1: {KAPPA: value}}, batch=60)


def test_a_trial_that_was_stopped_never_wins() -> None:
    finished = Outcome(Trial({"i": "f"}, (1,), "grid", {"i": "f"}), Result(Status.FINISHED), {1: {KAPPA: 0.1}})
    failed = Outcome(
        Trial({"i": "x"}, (1,), "grid", {"i": "x"}),
        Result(Status.FAILED, Failure(FailureKind.ERROR, "NaN")),
        {1: {KAPPA: 0.1}},
    )
    outcomes = ranked([failed, stopped(0.9), finished], Objective(KAPPA))
    assert [outcome.trial.config["i"] for outcome in outcomes] == ["f", "s", "x"]
    assert winner(outcomes, Objective(KAPPA)) is finished
    assert winner([stopped(0.9)], Objective(KAPPA)) is None
    lines = table(outcomes, make())
    assert lines[2].endswith("stopped early by ASHA at batch 60 of 100")
    assert "FAILED: NaN" in lines[3]


def test_mlflow_is_told_that_it_was_stopped_and_of_no_objective() -> None:
    outcome, rows = stopped(0.5), rows_of([0.1] * 6)
    assert outcome.result is not None
    for ending in (
        trial_ending(outcome.trial, outcome.result, rows, KAPPA),
        seed_ending(1, outcome.result, rows, KAPPA),
    ):
        assert ending.state is RunState.KILLED
        assert ending.tags["pcl.stopped_early"] == outcome.cause
        assert "pcl.cause" not in ending.tags
        assert ending.metrics == []


def test_optuna_learns_of_trials_that_were_stopped_also_where_its_database_is_lost(tmp_path: Path) -> None:
    space = make(stages=(Stage("grid", {"training.lr": log_uniform(1e-4, 1e-2)}),))
    method = Method(OPTUNA, (6,), 0, "tpe", "", "asha")
    lengths = {"training.n_batches": 100, "training.eval_every": 10, "training.phases": "mu kappa"}
    spec = StudySpec("x", space.fingerprint(), "reference", "smoke", lengths, tuning_seeds=(1,), method=method)
    study = StudyFolder(tmp_path / "s")
    study.path.mkdir()

    def proposer() -> Proposer:
        return Proposer(space, spec, study, 0, {}, (Objective(KAPPA),), lambda _: None, lambda _: None)

    def states() -> list[tuple[str, list[tuple[int, float]]]]:
        found = optuna.load_study(study_name="s", storage=f"sqlite:///{study.path / DATABASE}")
        return sorted((trial.state.name, sorted(trial.intermediate_values.items())) for trial in found.trials)

    first = proposer()
    for i in range(3):
        trial = first.next()
        assert trial is not None
        folder = study.trial(trial.key)
        token = folder.claim()
        for row in rows_of([0.1 * i] * (10 if i == 1 else 7)):
            folder.publish(row, token)
        folder.end(Result(Status.FINISHED if i == 1 else Status.STOPPED), token)
        first.ended(trial.key)
    expected = [("COMPLETE", []), ("PRUNED", [(20, 0.0), (40, 0.0)]), ("PRUNED", [(20, 0.2), (40, 0.2)])]
    assert states() == expected
    (study.path / DATABASE).unlink()
    again = proposer()
    assert states() == expected
    assert len(again.trials) == 3
    following = again.next()
    assert following is not None
    assert following.key not in {trial.key for trial in first.trials}
