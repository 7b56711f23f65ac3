"""Interfaces that the runner of trials needs: someone who has trials, and someone who is told how they go."""

from typing import Protocol

from pcl.studies.ledger.folders import TrialFolder
from pcl.studies.space.trial import Trial


class Listener(Protocol):
    """Someone who is told how trials go."""

    def started(self, folder: TrialFolder) -> None:
        """A worker has taken a trial."""

    def reported(self, folder: TrialFolder, batch: int, n_batches: int, objective: float) -> None:
        """A trial has published a report."""

    def restarted(self, folder: TrialFolder) -> None:
        """A trial's worker died and another takes over."""

    def ended(self, folder: TrialFolder) -> None:
        """A trial has a result."""

    def noted(self, folder: TrialFolder, text: str) -> None:
        """A worker has found a file of a trial that it cannot use."""


class Source(Protocol):
    """Someone who has trials, one after the other."""

    @property
    def trials(self) -> list[Trial]:
        """All so far."""

    def next(self) -> Trial | None:
        """One that has not ended; nothing if that was all."""

    def ended(self, key: str) -> None:
        """One may have ended: its folder says how."""
