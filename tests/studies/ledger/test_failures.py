"""Failures are recorded by their kind; records of the version before, which had sentences, are read as well."""

import json
from pathlib import Path

import pytest

from pcl.config.failure import Failure, FailureKind, failure_of_old_sentence
from pcl.config.run_config import RunConfig
from pcl.studies.ledger.folders import Result, Row, Status, TrialFolder
from pcl.studies.results.reuse import is_lost
from pcl.studies.results.selection import Outcome
from pcl.studies.tracking.tags import failure_of
from pcl.training.checkpoint import read_checkpoint
from pcl.training.run import Run
from tests.support.trackers import make_trial

# As the version before wrote them
OLD = {
    "worker died: The actor died unexpectedly": FailureKind.WORKER_DIED,
    "worker died without a result": FailureKind.NO_RESULT,
    "out of memory: CUDA out of memory.": FailureKind.OUT_OF_MEMORY,
    "ValueError: no": FailureKind.ERROR,
    "seed 4: the loss is nan at batch 8; seed 5: the loss is inf at batch 8": FailureKind.DIVERGED,
    "the encoder returns NaN at batch 4": FailureKind.NAN,
    "runaway kappa: its median 1e+07 is beyond training.kappa_limit = 1e+06 at batch 8": FailureKind.RUNAWAY_KAPPA,
    "the loss is nan at batch 8": FailureKind.LOSS_NOT_FINITE,
    "stopped early by ASHA at batch 60 of 100": FailureKind.STOPPED_EARLY,
    "not run": FailureKind.NOT_RUN,
}


def write_old(folder: TrialFolder, status: str, cause: str, failures: dict[str, str]) -> None:
    """Write a trial's reports and result as the version before did."""
    row = {
        "batch": 8, "n_batches": 8, "time_ms": 1, "seconds": 0.5, "by_seed": {"4": {"train/loss": "nan"}},
        "failures": failures,
    }  # fmt: skip
    result = {
        "status": status, "cause": cause, "traceback": "", "time_ms": 2, "hardware": "CPU x86_64", "wall_s": 1.0,
        "reused_from": "", "node": "",
    }  # fmt: skip
    (folder.path / "reports.json").write_text(json.dumps([row]))
    (folder.path / "result.json").write_text(json.dumps(result))


@pytest.mark.parametrize(("sentence", "kind"), OLD.items())
def test_old_records_are_read_with_a_kind_and_show_the_same_sentence(
    sentence: str, kind: FailureKind, tmp_path: Path
) -> None:
    folder = make_trial(tmp_path, (4,))
    write_old(folder, "failed", sentence, {"4": sentence})
    result, (row,) = folder.result(), folder.rows()
    assert result is not None
    assert result.failure is not None
    assert (result.failure.kind, result.cause) == (kind, sentence)
    assert row.failures == {4: result.failure}
    assert is_lost(result) == sentence.startswith("worker died")
    assert folder.repair() == []
    outcome = Outcome.of(folder.trial(), folder)
    assert (outcome.cause, outcome.failures[4].kind) == (sentence, kind)
    folder.reopen()  # as a resumed study does with those that were lost
    assert (folder.result(), folder.rows()) == (None, [])


def test_older_and_finished_records_are_read(tmp_path: Path) -> None:
    assert failure_of_old_sentence("the worker ended without a result").kind.is_of_machine
    folder = make_trial(tmp_path, (4,))
    write_old(folder, "finished", "", {})
    result = folder.result()
    assert result is not None
    assert (result.status, result.failure, result.cause) == (Status.FINISHED, None, "")


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failure_is_the_same_after_it_was_recorded(kind: FailureKind, tmp_path: Path) -> None:
    failure = Failure(kind, "" if kind in (FailureKind.NO_RESULT, FailureKind.NOT_RUN) else "seed: {odd}, 'words'")
    folder = make_trial(tmp_path)
    folder.publish(Row(8, 8, 1, 0.5, {1: {}}, {1: failure}), folder.claim())
    folder.close(Result(Status.FAILED, failure))
    recorded = json.loads((folder.path / "result.json").read_text())
    assert recorded["failure"] == {"kind": kind.value, "detail": failure.detail}
    assert folder.result() == Result.of(recorded)
    assert Result.of(recorded).failure == folder.rows()[0].failures[1] == failure


def test_tags_of_old_runs_tell_kinds_too() -> None:
    assert failure_of({}) is None
    sentence = "runaway kappa: its median 1e+07"
    new = failure_of({"pcl.failure_kind": "runaway_kappa", "pcl.failure_detail": "its median 1e+07", "pcl.cause": "-"})
    assert new == failure_of({"pcl.seed": "4", "pcl.cause": f"seed 4: {sentence}"})
    assert new == failure_of({"pcl.cause": sentence})
    assert str(new) == sentence
    several = failure_of({"pcl.cause": f"seed 4: {sentence}; seed 5: {sentence}"})
    assert several is not None
    assert several.kind is FailureKind.DIVERGED


def test_checkpoints_of_the_version_before_go_on_with_their_failures(tmp_path: Path) -> None:
    run = Run(RunConfig.of(scale="smoke"), (4, 5))
    next(iter(run))
    run.save(tmp_path / "run.pt")
    content = read_checkpoint(tmp_path / "run.pt")
    content["failures"] = {"4": "the loss is nan at batch 4"}  # as it was
    resumed = Run.resumed(content)
    assert resumed.failures == {4: Failure(FailureKind.LOSS_NOT_FINITE, "nan at batch 4")}
    resumed.save(tmp_path / "again.pt")
    assert Run.restore(tmp_path / "again.pt").failures == resumed.failures
    assert list(resumed)[-1].failures == resumed.failures
