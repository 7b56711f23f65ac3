"""Linear and logarithmic scales with round ticks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pcl.presentation.numbers import MINUS
from pcl.studies.results.parameter_effects import is_wide

Bounds = tuple[float, float]  # the least and the largest value of a metric
UNBOUNDED: Bounds = (-math.inf, math.inf)


@dataclass(frozen=True)
class Scale:
    """A map from values between `low` and `high` to pixels between `start` and `end`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    @classmethod
    def over(
        cls, values: Sequence[float], start: float, end: float, *, is_log: bool = False, within: Bounds = UNBOUNDED
    ) -> "Scale":
        """Return a scale with a little room around the values, as far as that is within a metric's bounds."""
        least, most = (min(values), max(values)) if values else (1.0, 10.0) if is_log else (0.0, 1.0)
        low, high = (math.log10(least), math.log10(most)) if is_log else (least, most)
        room = 0.06 * (high - low) or 0.5 * abs(high) or 0.5
        low, high = (10 ** (low - room), 10 ** (high + room)) if is_log else (low - room, high + room)
        return cls(max(low, min(within[0], least)), min(high, max(within[1], most)), start, end, is_log)

    def __call__(self, value: float) -> float:
        """Return a value's pixel."""
        low, high = (math.log10(self.low), math.log10(self.high)) if self.is_log else (self.low, self.high)
        share = ((math.log10(value) if self.is_log else value) - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 1)

    def clipped(self, value: float) -> float:
        """Return a value's pixel, or that of the end that it is beyond."""
        return self(min(max(value, self.low), self.high))

    def ticks(self, n_most: int = 6) -> list[float]:
        """Return round values on the scale."""
        if self.is_log:
            decades = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
            if len(decades) >= 2:
                return [10.0**d for d in decades][:: max(1, math.ceil(len(decades) / n_most))]
            first = math.floor(math.log10(self.low))
            finer = [factor * 10.0**d for d in (first, first + 1, first + 2) for factor in (1, 2, 5)]
            if len(inside := [tick for tick in finer if self.low <= tick <= self.high]) >= 2:
                return inside
        span = self.high - self.low
        step = 10 ** math.floor(math.log10(span / n_most))
        step *= next(factor for factor in (1, 2, 5, 10) if span / (factor * step) <= n_most)
        first = math.ceil(self.low / step)
        found = [i * step for i in range(first, math.floor(self.high / step) + 1)]
        return [t for t in found if t > 0] if self.is_log else found


def spans_decades(values: Sequence[float], within: Bounds) -> bool:
    """Return whether a metric is to be on a logarithmic scale: it has no upper bound, and its values span decades."""
    return math.isinf(within[1]) and is_wide(values)


def tick_text(value: float) -> str:
    """Format a tick as short as possible.

    Example:
        >>> tick_text(0.30000000000000004), tick_text(100000.0), tick_text(0.0), tick_text(-0.5)
        ('0.3', '1e5', '0', '−0.5')
    """
    text = f"{value:.6g}" if 1e-4 <= abs(value) < 1e5 or value == 0 else f"{value:.0e}"
    return text.replace("e+0", "e").replace("e-0", f"e{MINUS}").replace("e+", "e").replace("-", MINUS)


def numeric(texts: Sequence[str]) -> list[float] | None:
    """Return the texts as numbers, or None unless all are finite numbers."""
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None
