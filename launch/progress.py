"""How far a training is, in one line: renewed every second on a terminal, else every 15 seconds."""

import sys
import threading
import time
from collections.abc import Callable
from typing import Self

from launch.command import say


class Progress:
    """A line with batch, ETA and what is shown beside them.

    Args:
        batch: How many batches are done.
        n_batches: Of how many.
        stopped: What Ctrl-C leaves behind, in words.
    """

    def __init__(self, batch: Callable[[], int], n_batches: int, stopped: Callable[[], str]) -> None:
        self.shown = ""
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
            raise KeyboardInterrupt(f"stopped at batch {self._batch():,}; {self._stopped()}") from None

    def tell(self) -> None:
        """Print the line."""
        batch = self._batch()
        spent, done = time.perf_counter() - self._started, batch - self._first
        eta = duration(spent / done * (self._n_batches - batch)) if done else "?"
        line = f"{batch:,}/{self._n_batches:,}  ETA {eta}  {self.shown}"
        if sys.stdout.isatty():
            print(f"\r\033[K{line}", end="", flush=True)
        else:
            say(line)

    def _watch(self) -> None:
        while not self._is_done.wait(1.0 if sys.stdout.isatty() else 15.0):
            self.tell()


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours before them where there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
