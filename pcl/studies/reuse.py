"""What a study takes over from others, and what it runs again."""

from pcl.studies.ledger import Result, Row, Status, StudyFolder, now_ms
from pcl.studies.selection import Outcome
from pcl.studies.trial import Trial


def is_lost(result: Result | None) -> bool:
    """Whether a trial failed through no fault of its own, so that a resumed study runs it again."""
    return result is not None and is_lost_cause(result.cause)


def is_lost_cause(cause: str) -> bool:
    """Whether what it says is of the machine, and not of the trial."""
    return cause.startswith("worker died")


def take_over(study: StudyFolder, trial: Trial, outcome: Outcome, source: str) -> None:
    """Put another study's result of a trial into its folder here, unless there is one."""
    folder = study.trial(trial.key)
    if folder.result() is not None:
        return
    n_batches = int(trial.config["training.n_batches"])
    folder.begin(trial)
    token = folder.claim()
    folder.publish(Row(n_batches, n_batches, now_ms(), outcome.seconds, outcome.by_seed, outcome.failures), token)
    folder.end(Result(Status.FINISHED, reused_from=source), token)
