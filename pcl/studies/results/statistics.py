"""Means, standard errors and Student's t-intervals over seeds."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LEVEL = 0.95  # of confidence intervals


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error and confidence interval."""

    mean: float  # of the values; NaN where there is none
    error: float  # its standard error; NaN for fewer than two
    low: float  # lower end of its 95% confidence interval (Student's t); NaN for fewer than two
    high: float  # upper end
    n: int

    @property
    def has_interval(self) -> bool:
        """Return whether the interval has a width; where all values are equal, it has none."""
        return self.low < self.high


def standard_error(values: Sequence[float]) -> float:
    """Return the standard error of a mean of independent values; NaN for fewer than two or where one is not finite."""
    if len(values) < 2 or not all(map(math.isfinite, values)):
        return math.nan
    return statistics.stdev(values) / math.sqrt(len(values))


def t_quantile(n: int) -> float:
    """Return how many standard errors the interval around the mean of `n >= 2` values reaches to either side.

    Example:
        >>> round(t_quantile(5), 3)
        2.776
    """
    from scipy.special import stdtrit  # noqa: PLC0415  a tenth of a second

    return float(stdtrit(n - 1, (1 + LEVEL) / 2))


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the mean of independent values."""
    n = len(values)
    mean = statistics.fmean(values) if values else math.nan
    if n < 2:
        return Estimate(mean, math.nan, math.nan, math.nan, n)
    error = standard_error(values)
    reach = t_quantile(n) * error
    return Estimate(mean, error, mean - reach, mean + reach, n)
