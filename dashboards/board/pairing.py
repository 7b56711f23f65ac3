"""Differences of variants that saw the same random numbers, seed by seed."""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

_LEVEL = 0.95


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
