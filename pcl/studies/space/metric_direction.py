"""Direction of a metric by its name. Imports nothing, for readers of records."""

_ENDS = {"_corr": True, "recall_at_1": True, "_rmse": False, "_mae": False, "train/loss": False}


def larger_is_better(metric: str) -> bool | None:
    """Return whether larger values of a metric are better; None if neither direction is.

    Example:
        >>> [larger_is_better(f"eval/kappa_{what}") for what in ("rank_corr", "mae", "mean")]
        [True, False, None]
    """
    return next((is_larger for ending, is_larger in _ENDS.items() if metric.endswith(ending)), None)
