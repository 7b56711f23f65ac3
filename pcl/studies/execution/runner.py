"""Runners of trials: the protocols of runners, sources and listeners, and what all runners share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pcl.config.failure import Failure, FailureKind
from pcl.studies.execution.early_stopping import EarlyStopping
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.execution.monitoring import Gauges
from pcl.studies.execution.resources import Resources
from pcl.studies.ledger.folders import Result, Status, StudyFolder, TrialFolder
from pcl.studies.space.trial import Trial


class Listener(Protocol):
    """A receiver of trials' events."""

    def started(self, folder: TrialFolder) -> None:
        """Handle a worker taking a trial."""

    def reported(self, folder: TrialFolder, batch: int, n_batches: int, objective: float) -> None:
        """Handle a report that a trial has published."""

    def restarted(self, folder: TrialFolder) -> None:
        """Handle the death of a trial's worker; another takes over."""

    def ended(self, folder: TrialFolder) -> None:
        """Handle the end of a trial, which has a result."""

    def noted(self, folder: TrialFolder, text: str) -> None:
        """Handle a worker's note on a file of a trial that it cannot use."""


class Source(Protocol):
    """A source of trials, one after the other."""

    @property
    def trials(self) -> list[Trial]:
        """All trials so far."""

    def next(self) -> Trial | None:
        """Return a trial that has not ended; None if there are no more."""

    def ended(self, key: str) -> None:
        """Take note that a trial may have ended; its folder says how."""


@dataclass(frozen=True)
class Assignment:
    """Everything that a runner needs besides the trials."""

    study: StudyFolder  # where the trials' folders are
    metric: str  # metric of every report that the listener gets
    listener: Listener  # gets every event, in the thread that runs the trials
    interrupt: Interrupt  # ends all trials early; looked at between reports, or more often
    stopping: EarlyStopping | None = None  # ends trials early that fall behind, if there is such a rule


class TrialRunner(Protocol):
    """Runs trials to their end; each one's result is in its folder."""

    @property
    def resources(self) -> Resources:
        """Return a trial's resources."""

    def run_trials(self, trials: Sequence[Trial], assignment: Assignment) -> None:
        """Run trials that have not ended yet until every one has, or until interrupted."""

    def run_source(self, source: Source, assignment: Assignment) -> None:
        """Run trials as they come, each asked for when there is room for it."""

    def gauges(self, **labels: str) -> Gauges:
        """Return the gauges that publish the progress of a stage."""


class Events:
    """Tells a listener of trials' events; a trial whose files cannot be used ends the study."""

    def __init__(self, listener: Listener, interrupt: Interrupt) -> None:
        self.listener, self._interrupt = listener, interrupt
        self._has_failed = False

    def reported(self, folder: TrialFolder, batch: int, n_batches: int, objective: float) -> None:
        """Pass on a report."""
        if self._seen(folder, lambda: True):
            self.listener.reported(folder, batch, n_batches, objective)

    def ended(self, folder: TrialFolder) -> None:
        """Pass on that a trial ended, if it has a result."""
        if self._seen(folder, lambda: folder.result() is not None):
            self.listener.ended(folder)

    def failed(self, folder: TrialFolder, trial: Trial, told: str) -> None:
        """Record that a trial's worker died for good, with its error, unless the trial has a result.

        Possibly no worker came far enough to write the trial down.
        """

        def record() -> bool:
            if folder.result() is None:
                folder.begin(trial)
                folder.close(Result(Status.FAILED, Failure(FailureKind.WORKER_DIED, told.splitlines()[0]), told))
            return True

        if self._seen(folder, record):
            self.listener.ended(folder)

    def unwritable(self, cause: str) -> None:
        """End the study: a worker cannot write a trial's files."""
        self._interrupt.set(StopReason.UNWRITABLE_FILES, cause)

    def _seen(self, folder: TrialFolder, look: Callable[[], bool]) -> bool:
        """Pull a trial's files and look at them; False where they cannot be used.

        After a first failure, nothing is pulled: an unreachable store blocks for a minute.
        """
        try:
            if not self._has_failed:
                folder.pull()
            return look()
        except OSError as error:
            self._has_failed = True
            self._interrupt.set(StopReason.UNUSABLE_FILES, error)
            return False


def fail_unended(trials: Sequence[Trial], assignment: Assignment) -> None:
    """Record trials that are left without a result as failed, unless all were stopped."""
    for trial in trials:
        folder = assignment.study.trial(trial.key)
        if not assignment.interrupt.is_set() and folder.result() is None:
            folder.begin(trial)
            folder.close(Result(Status.FAILED, Failure(FailureKind.NO_RESULT)))
            assignment.listener.ended(folder)
