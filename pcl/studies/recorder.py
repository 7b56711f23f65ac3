"""A thread that keeps MLflow in line while trials run, and waits for it where it is away."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pcl.studies.ledger import TrialFolder
from pcl.studies.tracking import Tracker


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
        """Try what is left at once, and stop where nothing gets through for so long. What comes later is not recorded.

        Returns:
            Keys of trials (or "artifact NAME", of a trial "artifact NAME of KEY") that could not be brought in line.
        """
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        self._hurry.set()
        left = self.pending + 1
        while self.pending < left:
            left = self.pending
            self._thread.join(timeout_s)
        with self._changed:
            self._is_stopped = True
            return self._left()

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
