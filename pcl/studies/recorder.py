"""A thread that keeps MLflow in line while trials run, and waits for it where it is away."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pcl.studies.ledger import TrialFolder
from pcl.studies.tracking import Tracker


class _Standing(NamedTuple):
    """How far a recorder is; a slow store that answers without failing gets on, if not by a whole record."""

    pending: int
    n_answers: int
    n_failures: int


class Recorder:
    """Syncs trials in a thread. Nothing here blocks on MLflow or raises because of it, but for `close`, which waits.

    What fails is tried again, with growing pauses. A trial that is submitted again before its turn is synced once.

    Args:
        tracker: With an open study.
        first_pause_s: After the first failure.
        longest_pause_s: After many.
    """

    def __init__(self, tracker: Tracker, first_pause_s: float = 0.25, longest_pause_s: float = 10.0) -> None:
        self._tracker = tracker
        self._first_pause_s, self._longest_pause_s = first_pause_s, longest_pause_s
        self._jobs: dict[str, Callable[[], None]] = {}  # in the order of their turns
        self._current: str | None = None
        self._errors: dict[str, str] = {}
        self._n_failures = 0
        self._changed = threading.Condition()
        self._is_closing = self._is_stopped = False
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._work, name="pcl-recorder", daemon=True)
        self._thread.start()

    def submit(self, folder: TrialFolder) -> None:
        """Have the trial's run brought in line with its folder."""
        self._add(folder.key, partial(self._tracker.sync, folder))

    def submit_artifact(self, owner: TrialFolder | str, path: Path, folder: str = "") -> None:
        """Have a file or folder copied into the artifacts of a trial, or of a run such as the parent."""
        of_trial = f" of {owner.key}" if isinstance(owner, TrialFolder) else ""
        self._add(f"artifact {path.name}{of_trial}", partial(self._tracker.log_artifact, owner, path, folder))

    @property
    def pending(self) -> int:
        """How many are not yet in line."""
        with self._changed:
            return len(self._left())

    @property
    def errors(self) -> dict[str, str]:
        """Why the last attempt failed, of those that are not yet in line."""
        with self._changed:
            return dict(self._errors)

    def close(self, timeout_s: float) -> list[str]:
        """Try what is left at once, and stop where nothing is answered for so long. What comes later is not recorded.

        Returns:
            Keys of trials (or "artifact NAME", of a trial "artifact NAME of KEY") that could not be brought in line.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._hurry.set()
        before = self._standing()
        while before.pending:
            self._thread.join(timeout_s)
            now = self._standing()
            is_answered = now.n_answers > before.n_answers and now.n_failures == before.n_failures
            if now.pending >= before.pending and not is_answered:
                break
            before = now
        with self._changed:
            self._is_stopped = True
            return self._left()

    def _standing(self) -> _Standing:
        return _Standing(self.pending, self._tracker.store.n_answers, self._n_failures)

    def _left(self) -> list[str]:
        current = [self._current] if self._current is not None else []
        return current + [name for name in self._jobs if name not in current]

    def _add(self, name: str, job: Callable[[], None]) -> None:
        with self._changed:
            if not self._is_closing:
                self._jobs[name] = job
                self._changed.notify_all()

    def _work(self) -> None:
        pause_s = self._first_pause_s
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._is_closing)
                if not self._jobs or self._is_stopped:
                    return
                name = self._current = next(iter(self._jobs))
                job = self._jobs.pop(name)
            try:
                job()
            except Exception as error:  # whatever MLflow or the disk has: training goes on
                with self._changed:
                    self._current = None
                    self._errors[name] = str(error) or type(error).__name__
                    self._n_failures += 1
                    self._jobs.setdefault(name, job)  # the last in turn, unless it was submitted again meanwhile
                if self._hurry.wait(pause_s):
                    self._hurry.clear()  # of every pause but one, `close` waits for the whole
                    pause_s = 0.0
                pause_s = min(max(2 * pause_s, self._first_pause_s), self._longest_pause_s)
            else:
                with self._changed:
                    self._current = None
                    self._errors.pop(name, None)
                pause_s = self._first_pause_s
