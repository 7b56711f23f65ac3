"""Early ends of a study: Ctrl-C, a time budget, a failure that must end it."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from types import FrameType
from typing import NamedTuple

from pcl.studies.cluster.loss import Leaving


class StopReason(Enum):
    """A reason for a study to stop before its end."""

    SIGNAL = "signal"
    TIME_BUDGET = "time budget"
    TRIAL_FAILED = "trial failed"
    UNWRITABLE_FILES = "unwritable files"
    UNUSABLE_FILES = "unusable files"
    NO_PROPOSALS = "no proposals"
    GPU_LOST = "GPU lost"
    RAY_LOST = "Ray lost"
    TAKEN_OVER = "taken over"


_SENTENCES = {
    StopReason.SIGNAL: "stopped",
    StopReason.TIME_BUDGET: "the time budget is used up",
    StopReason.TRIAL_FAILED: "a trial failed ({})",
    StopReason.UNWRITABLE_FILES: "a trial's files cannot be written ({})",
    StopReason.UNUSABLE_FILES: "a trial's files cannot be used ({})",
    StopReason.GPU_LOST: "the GPU can no longer be used ({})",
    StopReason.TAKEN_OVER: "another process has taken over the study",
}


class Stop(NamedTuple):
    """A reason to stop with its detail; as text, a sentence."""

    reason: StopReason
    detail: str = ""

    def __str__(self) -> str:
        return _SENTENCES.get(self.reason, "{}").format(self.detail)


class Interrupt:
    """A switch that ends a study early: by Ctrl-C, a time budget, or a failure that must end it."""

    def __init__(self, time_budget_s: float = 0.0) -> None:
        self.stop: Stop | None = None  # why the study stops
        self.leaving = Leaving()  # brings the driver out of Tune where Ray has ended
        self._deadline = time.monotonic() + time_budget_s if time_budget_s else float("inf")

    def set(self, reason: StopReason, detail: object = "") -> None:
        """Stop all trials soon; `detail` is what happened, such as an error. The first reason stays."""
        self.stop = self.stop or Stop(reason, str(detail))

    def on_lost_ray(self, told: str) -> None:
        """Stop because Ray has ended; `told` is the cause."""
        self.set(StopReason.RAY_LOST, told)

    def on_lost_lease(self) -> None:
        """Stop because another process has taken over the study."""
        self.set(StopReason.TAKEN_OVER)

    def is_set(self) -> bool:
        """Return whether to stop."""
        if time.monotonic() > self._deadline:
            self.set(StopReason.TIME_BUDGET)
        return self.stop is not None

    @contextmanager
    def on_ctrl_c(self, say: Callable[[str], None]) -> Iterator[None]:
        """Stop cleanly at a first Ctrl-C or SIGTERM, at once at a second."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _: FrameType | None) -> None:
            if self.leaving.answer():
                return
            if self.stop:
                raise KeyboardInterrupt
            self.set(StopReason.SIGNAL)
            say("stopping: workers are ended, reports are recorded; once more stops at once")
            if number == signal.SIGTERM:  # Ray's daemons block SIGINT
                self.leaving.look()

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
