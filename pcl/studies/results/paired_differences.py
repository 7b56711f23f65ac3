"""Differences between variants, paired by seed: variants of a seed share their random numbers."""

import math
from collections.abc import Mapping

from pcl.metrics.names import larger_is_better
from pcl.studies.results.statistics import LEVEL, Estimate, estimate

_HANDFUL = 5


def paired(variant: Mapping[str, float], baseline: Mapping[str, float]) -> Estimate:
    """Estimate the difference, variant less baseline, over the seeds that both have.

    Example:
        >>> paired({"1": 2.0, "2": 4.0, "9": 7.0}, {"1": 1.0, "2": 2.0}).mean
        1.5
    """
    return estimate([variant[seed] - baseline[seed] for seed in variant if seed in baseline])


def by_chance(n_intervals: int) -> str:
    """Return in words how many of `n_intervals` would miss zero by chance; an empty string for a handful.

    Example:
        >>> by_chance(24)
        '24 intervals of 95%: about 1.2 would miss zero by chance alone, were there no differences.'
        >>> by_chance(5)
        ''
    """
    if n_intervals <= _HANDFUL:
        return ""
    expected = f"{(1 - LEVEL) * n_intervals:.1f}".removesuffix(".0")
    what = f"{n_intervals:,} intervals of {LEVEL:.0%}"
    return f"{what}: about {expected} would miss zero by chance alone, were there no differences."


def verdict(metric: str, difference: Estimate) -> str:
    """Return better or worse, unclear where the interval has zero in it, or same where no seed differs."""
    if difference.n and difference.mean == 0 and not difference.error > 0:
        return "same"
    if math.isnan(difference.low) or difference.low <= 0 <= difference.high:
        return "unclear"
    end = larger_is_better(metric)
    if end is None:
        return "larger" if difference.mean > 0 else "smaller"
    return "better" if (difference.mean > 0) == end else "worse"
