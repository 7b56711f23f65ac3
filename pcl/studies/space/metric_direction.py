"""Which end of a metric is the better one, by its name. Imports nothing: those who only read records ask too."""

_ENDS = {"_corr": True, "recall_at_1": True, "_rmse": False, "_mae": False, "train/loss": False}


def larger_is_better(metric: str) -> bool | None:
    """Whether it is the upper end; None where neither is.

    Example:
        >>> [larger_is_better(f"eval/kappa_{what}") for what in ("rank_corr", "mae", "mean")]
        [True, False, None]
    """
    return next((is_larger for ending, is_larger in _ENDS.items() if metric.endswith(ending)), None)
