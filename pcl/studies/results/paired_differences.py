"""Differences of variants that saw the same random numbers, seed by seed."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

_LEVEL = 0.95
_HANDFUL = 5


@dataclass(frozen=True)
class Estimate:
    """A mean.

    Attributes:
        mean: Of the values; NaN where there is none.
        error: Its standard error; NaN for fewer than two.
        low: Lower end of its 95% confidence interval (Student's t); NaN for fewer than two.
        high: Upper end.
        n: How many values.
    """

    mean: float
    error: float
    low: float
    high: float
    n: int

    @property
    def has_interval(self) -> bool:
        """Whether it could have missed a value by chance; where all values are equal, it could not."""
        return self.low < self.high


def estimate(values: list[float]) -> Estimate:
    """Of independent values."""
    n = len(values)
    mean = statistics.fmean(values) if values else math.nan
    if n < 2:
        return Estimate(mean, math.nan, math.nan, math.nan, n)
    from scipy.special import stdtrit  # noqa: PLC0415  a tenth of a second

    error = statistics.stdev(values) / math.sqrt(n)
    reach = float(stdtrit(n - 1, (1 + _LEVEL) / 2)) * error
    return Estimate(mean, error, mean - reach, mean + reach, n)


def paired(variant: Mapping[str, float], baseline: Mapping[str, float]) -> Estimate:
    """Of the differences, variant less baseline, over the seeds that both have.

    Example:
        >>> paired({"1": 2.0, "2": 4.0, "9": 7.0}, {"1": 1.0, "2": 2.0}).mean
        1.5
    """
    return estimate([variant[seed] - baseline[seed] for seed in variant if seed in baseline])


def by_chance(n_intervals: int) -> str:
    """What is to be expected of so many intervals of differences; nothing is said of a handful.

    Example:
        >>> by_chance(24)
        '24 intervals of 95%: about 1.2 would miss zero by chance alone, were there no differences.'
        >>> by_chance(5)
        ''
    """
    if n_intervals <= _HANDFUL:
        return ""
    expected = f"{(1 - _LEVEL) * n_intervals:.1f}".removesuffix(".0")
    what = f"{n_intervals:,} intervals of {_LEVEL:.0%}"
    return f"{what}: about {expected} would miss zero by chance alone, were there no differences."
