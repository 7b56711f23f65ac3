"""Early ends of a study: Ctrl-C, a time budget, a failure where none is wanted."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from pcl.studies.cluster.loss import Leaving


class Interrupt:
    """What can end a study early: Ctrl-C, a time budget, a failure where none is wanted."""

    def __init__(self, time_budget_s: float = 0.0) -> None:
        self.cause = ""
        self.leaving = Leaving()
        self._deadline = time.monotonic() + time_budget_s if time_budget_s else float("inf")

    def set(self, cause: str) -> None:
        """Stop all trials soon; the first cause stays."""
        self.cause = self.cause or cause

    def is_set(self) -> bool:
        """Whether to stop."""
        if time.monotonic() > self._deadline:
            self.set("the time budget is used up")
        return bool(self.cause)

    @contextmanager
    def on_ctrl_c(self, say: Callable[[str], None]) -> Iterator[None]:
        """A first Ctrl-C (or SIGTERM) stops cleanly, a second one at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _: FrameType | None) -> None:
            if self.leaving.answer():
                return
            if self.cause:
                raise KeyboardInterrupt
            self.set("stopped")
            say("stopping: workers are ended, reports are recorded; once more stops at once")
            if number == signal.SIGTERM:  # Ray's daemons block SIGINT
                self.leaving.look()

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
