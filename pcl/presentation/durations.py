"""Times and durations for people."""

import math
import time


def duration(seconds: float) -> str:
    """Format a duration as M:SS, H:MM:SS, or days and hours.

    Example:
        >>> duration(65.2), duration(3605), duration(90000)
        ('1:05', '1:00:05', '1 d 1 h')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def rounded_duration(seconds: float) -> str:
    """Format a duration in one unit.

    Example:
        >>> rounded_duration(0), rounded_duration(42.24), rounded_duration(754), rounded_duration(400000)
        ('0', '42 s', '13 min', '4.6 d')
    """
    if seconds < 0.05:
        return "0"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, length, above in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800), ("d", 86400, math.inf)):
        if seconds < above:
            return f"{seconds / length:.1f} {unit}" if length > 60 else f"{seconds / length:.0f} {unit}"
    raise AssertionError


def moment(time_ms: int) -> str:
    """Format a point in time, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(time_ms / 1000)) if time_ms else ""
