"""Clock that jumps, in this process alone: the time of day in Python's `time`."""

import time


def jump(after_s: float, by_s: float) -> None:
    """Shift `time.time` and `time.time_ns` by some seconds from a moment on; durations stay right."""
    at = time.monotonic() + after_s
    seconds, nanoseconds = time.time, time.time_ns

    def off() -> float:
        return by_s if time.monotonic() >= at else 0.0

    def wrong() -> float:
        return seconds() + off()

    def wrong_ns() -> int:
        return nanoseconds() + int(off() * 1e9)

    time.time, time.time_ns = wrong, wrong_ns
