"""Progress of a training or download in one line: updated in place on a terminal, else printed at intervals."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from launch.shared.command import say
from pcl.presentation.durations import duration


class Progress:
    """A progress line with batch, ETA and metrics.

    Args:
        batch: Returns how many batches are done.
        n_batches: Number of batches in all.
        stopped: Returns a sentence about what Ctrl-C leaves behind.
        unit: The unit of `batch`, for that sentence.
    """

    def __init__(
        self, batch: Callable[[], int], n_batches: int, stopped: Callable[[], str], unit: str = "batch"
    ) -> None:
        self.shown = ""
        self._unit = unit
        self._batch, self._n_batches, self._stopped = batch, n_batches, stopped
        self._first, self._started = batch(), time.perf_counter()
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._is_done.set()
        self._thread.join()
        if sys.stdout.isatty():
            print(flush=True)
        if kind is KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped at {self._unit} {self._batch():,}; {self._stopped()}") from None

    def tell(self) -> None:
        """Print the line."""
        batch = self._batch()
        spent, done = time.perf_counter() - self._started, batch - self._first
        eta = duration(spent / done * (self._n_batches - batch)) if done else "?"
        _show(f"{batch:,}/{self._n_batches:,}  ETA {eta}  {self.shown}")

    def _watch(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # the reader is gone; the training notices at its next report
            while not self._is_done.wait(1.0 if sys.stdout.isatty() else 15.0):
                self.tell()


class Downloads:
    """Progress of downloads: percentage and ETA of each file, in place on a terminal, else every 10 seconds."""

    def __init__(self) -> None:
        self._name, self._first, self._started, self._shown = "", 0, 0.0, 0.0

    def tell(self, name: str, done: int, total: int) -> None:
        """Report the progress of a file; `total` is 0 if unknown."""
        now, is_terminal = time.perf_counter(), sys.stdout.isatty()
        if name != self._name:
            self._name, self._first, self._started, self._shown = name, done, now, now
        is_done = done == total
        if not is_done and now - self._shown < (0.2 if is_terminal else 10.0):
            return
        self._shown = now
        line = f"{name}  {_progress(done, total, done - self._first, now - self._started)}"
        _show(line, "\n" if is_done else "")


def _show(line: str, end: str = "") -> None:
    """Print a line, in place on a terminal."""
    if sys.stdout.isatty():
        print(f"\r\033[K{line}", end=end, flush=True)
    else:
        say(line)


def _progress(done: int, total: int, arrived: int, seconds: float) -> str:
    """Return the progress of a file, such as "42%  71.6 of 170.5 MB  ETA 0:31"."""
    if not total:
        return f"{done / 1e6:.1f} MB"
    left = seconds / arrived * (total - done) if arrived else 0.0
    eta = duration(left) if arrived or done == total else "?"
    return f"{done / total:.0%}  {done / 1e6:.1f} of {total / 1e6:.1f} MB  ETA {eta}"
