"""Metrics for people: their short names, and which end is the better one. Imports nothing, for readers of records."""

_NAMES = {
    "eval/kappa_rank_corr": "κ rank", "eval/kappa_mae": "κ MAE", "eval/kappa_rmse": "κ RMSE",
    "eval/mu_rank_corr": "μ rank", "eval/mu_mae": "μ MAE", "eval/mu_rmse": "μ RMSE",
    "eval/spread_rank_corr": "spread rank", "eval/spread_mae": "spread MAE",
    "eval/spread_rmse": "spread RMSE",
    "val/crop_rank_corr": "crop", "val/entropy_rank_corr": "entropy", "val/recall_at_1": "R@1",
    "test/crop_rank_corr": "test crop", "test/entropy_rank_corr": "test entropy", "test/recall_at_1": "test R@1",
    "train/loss": "loss",
}  # fmt: skip
_ENDS = {"_corr": True, "recall_at_1": True, "_rmse": False, "_mae": False, "train/loss": False}


def larger_is_better(metric: str) -> bool | None:
    """Return whether larger values of a metric are better; None if neither direction is.

    Example:
        >>> [larger_is_better(f"eval/kappa_{what}") for what in ("rank_corr", "mae", "mean")]
        [True, False, None]
    """
    return next((is_larger for ending, is_larger in _ENDS.items() if metric.endswith(ending)), None)


def metric_name(metric: str) -> str:
    """Return the short name, with an arrow to the better end."""
    arrow = {True: " ↑", False: " ↓", None: ""}[larger_is_better(metric)]
    return _NAMES.get(metric, metric) + arrow
