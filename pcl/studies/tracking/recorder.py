"""Threads that keep MLflow up to date while trials run, and wait while it is unreachable."""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pcl.studies.ledger.folders import TrialFolder
from pcl.studies.tracking.tracker import Tracker

_AT_ONCE = 4  # records sent concurrently to a server, which may be far away; a database gets one after the other
_ARTIFACT = "artifact "


class Recorder:
    """Syncs trials in background threads. Only `close` waits for MLflow, and none of its errors are raised.

    Failures are retried, with growing pauses. A trial that is submitted again before its turn is synced once. The
    tracker must have a study open.
    """

    def __init__(self, tracker: Tracker, first_pause_s: float = 0.25, longest_pause_s: float = 10.0) -> None:
        self._tracker = tracker
        self._first_pause_s, self._longest_pause_s = first_pause_s, longest_pause_s
        self._jobs: dict[str, Callable[[], None]] = {}  # in the order of their turns
        self._current: set[str] = set()
        self._errors: dict[str, str] = {}
        self._n_failures = 0
        self._changed = threading.Condition()
        self._is_closing = self._is_stopped = False
        self._hurry = threading.Event()
        n_threads = 1 if tracker.store.database else _AT_ONCE
        self._threads = [
            threading.Thread(target=self._work, name="pcl-recorder", daemon=True) for _ in range(n_threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, folder: TrialFolder) -> None:
        """Queue the sync of the trial's run with its folder."""
        self._add(folder.key, partial(self._tracker.sync, folder))

    def submit_artifact(self, owner: TrialFolder | str, path: Path) -> None:
        """Queue the copy of a file or folder into the artifacts of a trial, or of a run such as the parent."""
        of_trial = f" of {owner.key}" if isinstance(owner, TrialFolder) else ""
        self._add(f"{_ARTIFACT}{path.name}{of_trial}", partial(self._tracker.log_artifact, owner, path))

    @property
    def pending(self) -> int:
        """Return how many records are still to be sent."""
        with self._changed:
            return len(self._left())

    @property
    def errors(self) -> dict[str, str]:
        """Return why the last attempt failed, by record that is still to be sent."""
        with self._changed:
            return dict(self._errors)

    def close(self, timeout_s: float) -> list[str]:
        """Try what is left at once, and stop after so long without an answer. Later submissions are not recorded.

        Returns:
            Keys of trials (or "artifact NAME", of a trial "artifact NAME of KEY") that could not be synced.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._hurry.set()
        while n_pending := self.pending:
            if not self._gets_on(n_pending, timeout_s):
                break
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            return self._left()

    def _gets_on(self, n_pending: int, timeout_s: float) -> bool:
        """Wait; return whether a record was sent, or a slow store has answered a part of one."""
        n_answers, n_failures, deadline = self._tracker.store.n_answers, self._n_failures, time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        is_answered = self._tracker.store.n_answers > n_answers and self._n_failures == n_failures
        return self.pending < n_pending or is_answered

    def _left(self) -> list[str]:
        return [*self._current, *(name for name in self._jobs if name not in self._current)]

    def _next(self) -> str | None:
        """Return the next job: no record is sent twice at a time, and artifacts wait for earlier jobs."""
        for name in self._jobs:
            if name.startswith(_ARTIFACT) and self._current:
                return None
            if name not in self._current:
                return name
        return None

    def _add(self, name: str, job: Callable[[], None]) -> None:
        with self._changed:
            if not self._is_closing:
                self._jobs[name] = job
                self._changed.notify_all()

    def _work(self) -> None:
        pause_s = self._first_pause_s
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._next() or (self._is_closing and not self._jobs) or self._is_stopped
                )
                name = self._next()
                if name is None or self._is_stopped:
                    return
                job = self._jobs.pop(name)
                self._current.add(name)
            try:
                job()
            except Exception as error:  # training continues whatever MLflow or the disk raises
                with self._changed:
                    self._current.remove(name)
                    self._errors[name] = str(error) or type(error).__name__
                    self._n_failures += 1
                    self._jobs.setdefault(name, job)  # the last in turn, unless it was submitted again meanwhile
                    self._changed.notify_all()
                if self._hurry.wait(pause_s):
                    self._hurry.clear()  # `close` cuts only one pause short
                    pause_s = 0.0
                pause_s = min(max(2 * pause_s, self._first_pause_s), self._longest_pause_s)
            else:
                with self._changed:
                    self._current.remove(name)
                    self._errors.pop(name, None)
                    self._changed.notify_all()
                pause_s = self._first_pause_s
