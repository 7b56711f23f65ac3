"""Trials in this process, without Ray: the same folders, events, numbers and winner."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pcl.studies.execution import worker
from pcl.studies.execution.early_stopping import EarlyStopping
from pcl.studies.execution.inline_runner import InlineRunner
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.runner import Assignment
from pcl.studies.execution.trial_execution import Choices, Execution
from pcl.studies.ledger.folders import Status, StudyFolder, TrialFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.results.reuse import is_lost
from pcl.studies.search.stages import Finding, Search
from pcl.studies.space.ranges import log_uniform
from pcl.studies.space.search_method import OPTUNA, Method
from pcl.studies.space.search_space import Objective, SearchSpace, Stage
from pcl.studies.space.trial import REPLICATE_STAGE, REPORT_STAGE, Trial
from pcl.training.run import Run
from tests.support.services import SHORT, on_disk, without_times
from tests.support.smoke import smoke

METRIC = "eval/kappa_rank_corr"
RUNNER = InlineRunner(Resources())


def trial(seeds: tuple[int, ...] = (1,), **values: Any) -> Trial:
    config = smoke(training__n_batches=6, training__eval_every=2, **values)
    return Trial(config.flat(), seeds, "grid", {name: str(value) for name, value in values.items()})


FINE, OTHER, FAILING = trial(), trial((1, 2), loss__n_samples=2), trial(training__kappa_limit=1e-3)


class Heard:
    """A listener that keeps what it is told, and may do something about it."""

    def __init__(self, on_report: Any = lambda folder, batch: None) -> None:
        self.events: list[tuple[Any, ...]] = []
        self._on_report = on_report

    def started(self, folder: TrialFolder) -> None:
        self.events.append(("started", folder.key))

    def reported(self, folder: TrialFolder, batch: int, n_batches: int, objective: float) -> None:
        self.events.append(("reported", folder.key, batch, n_batches))
        assert objective == folder.rows()[-1].metrics[METRIC]
        self._on_report(folder, batch)

    def restarted(self, folder: TrialFolder) -> None:
        pytest.fail("nothing is restarted in this process")

    def ended(self, folder: TrialFolder) -> None:
        result = folder.result()
        assert result is not None
        self.events.append(("ended", folder.key, result.status))

    def noted(self, folder: TrialFolder, text: str) -> None:
        self.events.append(("noted", folder.key, text))


def run(
    study: StudyFolder, *trials: Trial, listener: Heard | None = None, interrupt: Interrupt | None = None
) -> list[tuple[Any, ...]]:
    heard = listener or Heard()
    RUNNER.run_trials(trials, Assignment(study, METRIC, heard, interrupt or Interrupt()))
    return heard.events


_ALONE: dict[str, list[Any]] = {}  # by key of a trial, which has the same reports whenever it is trained


def alone(*trials: Trial) -> dict[str, Any]:
    """Every report of trials that are trained by themselves, as `on_disk` has them."""
    for trial in trials:
        if trial.key not in _ALONE:
            _ALONE[trial.key] = [without_times(report.by_seed) for report in Run(trial.run_config, trial.seeds)]
    return {trial.key: _ALONE[trial.key] for trial in trials}


def test_trials_run_one_after_the_other_to_the_numbers_of_each_alone(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "study")
    events = run(study, FINE, OTHER)
    assert on_disk(study) == alone(FINE, OTHER)
    assert events == [
        event
        for trial in (FINE, OTHER)
        for event in [
            ("started", trial.key), *(("reported", trial.key, batch, 6) for batch in (2, 4, 6)),
            ("ended", trial.key, Status.FINISHED),
        ]
    ]  # fmt: skip
    for key in (FINE.key, OTHER.key):
        files = {path.name for path in study.trial(key).path.iterdir()}
        assert files == {"trial.json", "reports.json", "result.json", "checkpoint.pt", "owner"}
        result = study.trial(key).result()
        assert result is not None
        assert result.hardware.startswith("CPU")
        assert (result.node, result.wall_s > 0) == ("", True)


def test_a_trial_that_fails_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "study")
    events = run(study, FAILING, FINE)
    failed, finished = (study.trial(trial.key).result() for trial in (FAILING, FINE))
    assert failed is not None
    assert finished is not None
    assert (failed.status, finished.status) == (Status.FAILED, Status.FINISHED)
    assert "runaway kappa" in failed.cause
    assert not is_lost(failed)
    assert ("ended", FAILING.key, Status.FAILED) in events


def test_an_error_that_would_end_a_worker_fails_the_trial_until_the_study_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, take = StudyFolder(tmp_path / "study"), TrialFolder.take

    def broken(folder: TrialFolder, trial: Trial) -> str:
        if trial == FINE:
            raise RuntimeError("broken")
        return take(folder, trial)

    monkeypatch.setattr(TrialFolder, "take", broken)
    run(study, FINE, OTHER)
    lost, finished = (study.trial(trial.key).result() for trial in (FINE, OTHER))
    assert lost is not None
    assert finished is not None
    assert (lost.status, finished.status) == (Status.FAILED, Status.FINISHED)
    assert "broken" in lost.cause
    assert is_lost(lost)


def test_without_a_gpu_the_study_stops_and_can_be_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study, interrupt, moments = StudyFolder(tmp_path / "study"), Interrupt(), Run.moments

    def faulty(run: Run) -> Any:
        yield from islice(moments(run), 2)
        raise RuntimeError("CUDA error: unspecified launch failure")

    with monkeypatch.context() as patch:
        patch.setattr(Run, "moments", faulty)
        patch.setattr(worker, "is_gpu_lost", lambda device: True)
        events = run(study, FINE, OTHER, interrupt=interrupt)
    assert str(interrupt.stop) == "the GPU can no longer be used (CUDA error: unspecified launch failure)"
    assert {event[:2] for event in events} <= {("started", FINE.key), ("reported", FINE.key)}
    assert study.trial(FINE.key).result() is None
    run(study, FINE, OTHER)
    assert on_disk(study) == alone(FINE, OTHER)


@pytest.mark.parametrize("error", [RuntimeError("of the caller"), BrokenPipeError("of the caller")])
def test_an_error_of_the_listener_is_the_callers_and_no_failure_of_the_trial(error: Exception, tmp_path: Path) -> None:
    study, interrupt = StudyFolder(tmp_path / "study"), Interrupt()

    def complain(folder: TrialFolder, batch: int) -> None:
        if batch == 4:
            raise error

    with pytest.raises(type(error), match="of the caller"):
        run(study, FINE, OTHER, listener=Heard(complain), interrupt=interrupt)
    assert interrupt.stop is None
    assert study.trial(FINE.key).result() is None
    assert [row.batch for row in study.trial(FINE.key).rows()] == [2, 4]
    run(study, FINE, OTHER)
    assert on_disk(study) == alone(FINE, OTHER)


def test_an_error_of_say_is_the_callers(tmp_path: Path) -> None:
    def say(line: str) -> None:
        if line.startswith("  "):  # the first trial's end
            raise BrokenPipeError("of the caller")

    with pytest.raises(BrokenPipeError, match="of the caller"):
        search(SPACE, spec_of(SPACE), StudyFolder(tmp_path / "study"), say=say)
    (folder,) = StudyFolder(tmp_path / "study").trials()
    result = folder.result()
    assert result is not None
    assert result.status is Status.FINISHED


@pytest.mark.parametrize("batch", [2, 4])
def test_an_interrupted_trial_goes_on_from_its_checkpoint(batch: int, tmp_path: Path) -> None:
    study, interrupt = StudyFolder(tmp_path / "study"), Interrupt()

    def stop(folder: TrialFolder, at: int) -> None:
        if at == batch and interrupt.stop is None:
            os.kill(os.getpid(), signal.SIGINT)  # a Ctrl-C

    said: list[str] = []
    with interrupt.on_ctrl_c(said.append):
        events = run(study, FINE, OTHER, listener=Heard(stop), interrupt=interrupt)
    assert len(said) == 1
    assert interrupt.is_set()
    assert [event[0] for event in events] == ["started", *["reported"] * (batch // 2)]
    assert study.trial(FINE.key).result() is None
    assert len(study.trial(FINE.key).rows()) == batch // 2
    assert not study.trial(OTHER.key).path.exists()
    run(study, FINE, OTHER)
    assert on_disk(study) == alone(FINE, OTHER)


def test_files_that_cannot_be_written_end_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(TrialFolder, "publish", full)
    interrupt = Interrupt()
    run(StudyFolder(tmp_path / "study"), FINE, OTHER, interrupt=interrupt)
    assert "disk full" in str(interrupt.stop)
    assert StudyFolder(tmp_path / "study").trial(FINE.key).result() is None


def test_trials_that_fall_behind_are_stopped(tmp_path: Path) -> None:
    study, interrupt = StudyFolder(tmp_path / "study"), Interrupt()
    long = {"training__n_batches": 20, "training__eval_every": 2, "training__phases": "joint"}
    trials = [Trial(smoke(loss__n_samples=n, **long).flat(), (1,), "grid") for n in (1, 2, 3)]
    values = {t.key: list(islice(Run(t.run_config, t.seeds), 2))[1].metrics[METRIC] for t in trials}
    best_first = sorted(trials, key=lambda trial: -values[trial.key])
    heard = Heard()
    stopping = EarlyStopping(study, "grid", Objective(METRIC), interrupt)
    RUNNER.run_trials(best_first, Assignment(study, METRIC, heard, interrupt, stopping))
    results = [study.trial(trial.key).result() for trial in best_first]
    assert [result is not None and result.status for result in results[:2]] == [Status.FINISHED, Status.STOPPED]
    assert ("ended", best_first[1].key, Status.STOPPED) in heard.events
    assert study.trial(best_first[1].key).rows()[-1].batch == 4  # a ninth of 20, the first report after it


def search(
    space: SearchSpace, spec: StudySpec, study: StudyFolder, interrupt: Interrupt | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Finding:  # fmt: skip
    """A study in this process, with an MLflow that knows and keeps nothing."""
    study.path.mkdir(parents=True, exist_ok=True)
    tracker: Any = SimpleNamespace(finished=lambda _: None)
    recorder: Any = SimpleNamespace(submit=lambda _: None, errors=[])
    choices, interrupt = Choices(RUNNER, is_finalized=True), interrupt or Interrupt()
    execution = Execution(space.objective, study, tracker, recorder, choices, interrupt, say)
    return Search(space, spec, execution, recorder, interrupt).run()


STAGES = (Stage("one", {"loss.n_samples": (2, 4)}), Stage("two", {"training.lr": (1e-3, 1e-2)}))
SPACE = SearchSpace("mine", "mc_info_nce", STAGES, SHORT, tuning_seeds=(1, 2), report_seeds=(4,))


def spec_of(space: SearchSpace, **more: Any) -> StudySpec:
    seeds = {"tuning_seeds": space.tuning_seeds, "report_seeds": space.report_seeds}
    return StudySpec("x", space.fingerprint(), "reference", "smoke", **{**seeds, **more})


def test_stages_replication_and_report_of_a_search(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path / "study")
    finding = search(SPACE, spec_of(SPACE, replicate="auto"), study)
    first = finding.stages["one"]
    every = alone(*(outcome.trial for outcome in first))
    means = {key: sum(metrics[METRIC] for metrics in reports[-1].values()) for key, reports in every.items()}
    assert [outcome.trial.key for outcome in first] == sorted(means, key=lambda key: -means[key])
    assert len(finding.stages["two"]) == 2
    assert finding.best is not None
    assert {outcome.trial.stage for outcome in finding.report} == {REPORT_STAGE}
    assert {outcome.trial.stage for outcome in finding.replicates} <= {REPLICATE_STAGE}
    reports = on_disk(study)
    again = search(SPACE, spec_of(SPACE, replicate="auto"), study)
    assert again.best == finding.best
    assert on_disk(study) == reports


def test_optuna_proposes_one_trial_after_the_other_and_goes_on(tmp_path: Path) -> None:
    space = replace(SPACE, stages=(Stage("lr", {"training.lr": log_uniform(1e-4, 1e-2)}),))
    spec = spec_of(space, tuning_seeds=(1,), method=Method(OPTUNA, (4,), 0, "tpe"))
    whole = search(space, spec, StudyFolder(tmp_path / "whole" / "s"))
    assert len(whole.stages["lr"]) == 4
    study = StudyFolder(tmp_path / "parts" / "s")
    search(space, spec, study, Interrupt(1e-9))
    assert not list(study.trials())
    parts = search(space, spec, study)
    assert [o.trial.key for o in parts.stages["lr"]] == [o.trial.key for o in whole.stages["lr"]]
    assert parts.best is not None
    assert whole.best is not None
    assert parts.best.trial == whole.best.trial
