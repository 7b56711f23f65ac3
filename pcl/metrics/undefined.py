"""Text and JSON for numbers that are undefined or infinite.

A rank correlation with a constant is undefined: NaN. The mean over a trial's seeds is undefined where one of them is,
in tables, in JSON (null) and as `objective` in MLflow (NaN). Such a trial cannot win: its mean would be over other
seeds than its rivals'. Tables that compare with the paper or with a baseline use the seeds that have a value, and say
how many there are.
"""

import math
from collections.abc import Container, Mapping, Sequence

UNDEFINED = "undefined"


def told(value: float, style: str = ".3f") -> str:
    """Return a number as text.

    Example:
        >>> told(0.8213), told(float("nan")), told(float("-inf"))
        ('0.821', 'undefined', '-∞')
    """
    if math.isnan(value):
        return UNDEFINED
    return format(value, style) if math.isfinite(value) else ("∞" if value > 0 else "-∞")


def told_with_error(mean: float, error: float, style: str = ".3f", error_style: str = "", joint: str = " ± ") -> str:
    """Return a mean with its standard error as text, or without it where one of them is undefined.

    Example:
        >>> told_with_error(0.8213, 0.04), told_with_error(0.8, math.nan), told_with_error(math.nan, math.nan)
        ('0.821 ± 0.040', '0.800', 'undefined')
    """
    has_error = math.isfinite(mean) and not math.isnan(error)
    return told(mean, style) + (f"{joint}{told(error, error_style or style)}" if has_error else "")


def as_json(value: float) -> float | None:
    """Return a number as JSON can hold it: None (null) for NaN and infinities."""
    return value if math.isfinite(value) else None


def mean_of(values: Sequence[float]) -> float:
    """Return the mean; NaN for no values, for NaN, and for infinities of both signs.

    Example:
        >>> mean_of([1.0, 2.0]), mean_of([1.0, math.inf]), mean_of([1.0, math.nan]), mean_of([math.inf, -math.inf])
        (1.5, inf, nan, nan)
    """
    return math.fsum(values) / len(values) if all(map(math.isfinite, values)) and values else _limit(values)


def seed_means(by_seed: Mapping[int, Mapping[str, float]], failed: Container[int]) -> dict[str, float]:
    """Return the mean of every metric over the seeds that have not failed, or over all if all have."""
    chosen = [m for seed, m in by_seed.items() if seed not in failed] or list(by_seed.values())
    return {key: sum(metrics[key] for metrics in chosen) / len(chosen) for key in chosen[0]} if chosen else {}


def _limit(values: Sequence[float]) -> float:
    infinities = {value for value in values if not math.isfinite(value)}
    return infinities.pop() if len(infinities) == 1 else math.nan
