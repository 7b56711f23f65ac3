"""Trials that a study takes over from others, and those that it runs again."""

from pcl.studies.ledger.folders import Result, Row, Status, StudyFolder, now_ms
from pcl.studies.results.selection import Outcome
from pcl.studies.space.trial import Trial


def is_lost(result: Result | None) -> bool:
    """Return whether a trial failed through no fault of its own, so that a resumed study runs it again."""
    return result is not None and result.failure is not None and result.failure.kind.is_of_machine


def take_over(study: StudyFolder, trial: Trial, outcome: Outcome, source: str) -> None:
    """Write another study's result of a trial to its folder here, in one step, unless it has one."""
    folder = study.trial(trial.key)
    if folder.result() is not None:
        return
    if folder.rows():
        folder.reopen()
    folder.begin(trial)
    n_batches = int(trial.config["training.n_batches"])
    row = Row(n_batches, n_batches, now_ms(), outcome.seconds, outcome.by_seed, outcome.failures)
    folder.end(Result(Status.FINISHED, reused_from=source, row=row), folder.claim())
