"""Names of all metrics, their better directions and their short names for people.

Imports nothing of the package: readers of records need this module too. Names have the form `split/what`, with the
split `eval` for the toy task, `val` and `test` for images, and `last` for test images by the weights of the last batch.
"""

import math
from collections.abc import Mapping

# Of every report
TRAIN_LOSS = "train/loss"
MS_PER_BATCH = "time/ms_per_batch"
TRAIN_S = "time/train_s"


def of_learned(numbers: Mapping[str, float]) -> dict[str, float]:
    """Return the numbers that a loss learns, such as kappa_pos, by the names of their metrics."""
    return {f"learned/{name}": value for name, value in numbers.items()}


# Of the toy task
KAPPA_RANK_CORR, KAPPA_MAE, KAPPA_RMSE = "eval/kappa_rank_corr", "eval/kappa_mae", "eval/kappa_rmse"
KAPPA_MEAN, KAPPA_MEDIAN = "eval/kappa_mean", "eval/kappa_median"
MU_RANK_CORR, MU_MAE, MU_RMSE = "eval/mu_rank_corr", "eval/mu_mae", "eval/mu_rmse"
SPREAD_RANK_CORR, SPREAD_MAE, SPREAD_RMSE = "eval/spread_rank_corr", "eval/spread_mae", "eval/spread_rmse"
# The same estimated from 100 samples per point on both sides, as in the paper's table
SPREAD100_RANK_CORR, SPREAD100_MAE = "eval/spread100_rank_corr", "eval/spread100_mae"
SPREAD100_RMSE = "eval/spread100_rmse"
# Share of true latents in the encoder's credible caps at these levels, and the line of kappa-hat on kappa
COVERAGE_50, COVERAGE_90, COVERAGE_95 = "eval/coverage_50", "eval/coverage_90", "eval/coverage_95"
COVERAGE = {0.5: COVERAGE_50, 0.9: COVERAGE_90, 0.95: COVERAGE_95}
KAPPA_SLOPE, KAPPA_INTERCEPT = "eval/kappa_slope", "eval/kappa_intercept"
# In the order of `recovery.Recovery`
KAPPA_RECOVERY = (KAPPA_RMSE, KAPPA_MAE, KAPPA_RANK_CORR)
MU_RECOVERY = (MU_RMSE, MU_MAE, MU_RANK_CORR)
SPREAD_RECOVERY = (SPREAD_RMSE, SPREAD_MAE, SPREAD_RANK_CORR)
SPREAD100_RECOVERY = (SPREAD100_RMSE, SPREAD100_MAE, SPREAD100_RANK_CORR)

# Of images
VAL_CROP, VAL_ENTROPY, VAL_RECALL = "val/crop_rank_corr", "val/entropy_rank_corr", "val/recall_at_1"
TEST_CROP, TEST_ENTROPY, TEST_RECALL = "test/crop_rank_corr", "test/entropy_rank_corr", "test/recall_at_1"
VAL_CHANCE, TEST_CHANCE = "val/recall_by_chance", "test/recall_by_chance"  # Recall@1 of random neighbours
VAL, TEST = (VAL_CROP, VAL_ENTROPY, VAL_RECALL), (TEST_CROP, TEST_ENTROPY, TEST_RECALL)
# The same of the test images, by the weights of the last batch instead of the best evaluation's
LAST_CROP, LAST_ENTROPY, LAST_RECALL = "last/crop_rank_corr", "last/entropy_rank_corr", "last/recall_at_1"
# Area under the curve of Recall@1 as uncertain images are rejected; of test images alone
TEST_REJECTION, LAST_REJECTION = "test/rejection_area", "last/rejection_area"
LAST = {  # by the metric of the best evaluation
    TEST_CROP: LAST_CROP, TEST_ENTROPY: LAST_ENTROPY, TEST_RECALL: LAST_RECALL, TEST_REJECTION: LAST_REJECTION,
}  # fmt: skip
BEST_BATCH = "best/batch"  # batch of the evaluation in the last report

# Of runs in MLflow, in no report
OBJECTIVE, OBJECTIVE_SE = "objective", "objective_se"  # mean over seeds and its standard error
BEST_OBJECTIVE = "best/objective"  # of a study
CONSTANT_KAPPA_MAE = "constant/kappa_mae"  # of a study whose trials share a truth: error of the best constant kappa

# Tables of trials show these next to the objective, if they are recorded.
MAIN_METRICS = (
    KAPPA_RANK_CORR, KAPPA_MAE, MU_RANK_CORR, MU_MAE, COVERAGE_90, KAPPA_SLOPE, VAL_CROP, VAL_ENTROPY, VAL_RECALL,
)  # fmt: skip

SHORT_NAMES = {
    KAPPA_RANK_CORR: "κ rank", KAPPA_MAE: "κ MAE", KAPPA_RMSE: "κ RMSE",
    MU_RANK_CORR: "μ rank", MU_MAE: "μ MAE", MU_RMSE: "μ RMSE",
    SPREAD_RANK_CORR: "spread rank", SPREAD_MAE: "spread MAE", SPREAD_RMSE: "spread RMSE",
    SPREAD100_RANK_CORR: "spread rank by 100", SPREAD100_MAE: "spread MAE by 100",
    SPREAD100_RMSE: "spread RMSE by 100",
    COVERAGE_50: "50% cap", COVERAGE_90: "90% cap", COVERAGE_95: "95% cap",
    KAPPA_SLOPE: "κ slope", KAPPA_INTERCEPT: "κ intercept",
    VAL_CROP: "crop", VAL_ENTROPY: "entropy", VAL_RECALL: "R@1",
    TEST_CROP: "test crop", TEST_ENTROPY: "test entropy", TEST_RECALL: "test R@1",
    TEST_REJECTION: "test R@1 by rejection", LAST_REJECTION: "test R@1 by rejection, last",
    LAST_CROP: "test crop, last", LAST_ENTROPY: "test entropy, last", LAST_RECALL: "test R@1, last",
    VAL_CHANCE: "R@1 by chance", TEST_CHANCE: "test R@1 by chance",
    "learned/kappa_pos": "κ_pos", "learned/a": "a", "learned/b": "b",
    TRAIN_LOSS: "loss", KAPPA_MEAN: "κ mean", KAPPA_MEDIAN: "κ median", BEST_BATCH: "best batch",
    MS_PER_BATCH: "ms per batch", TRAIN_S: "training, s",
}  # fmt: skip

_ENDS = {"_corr": True, "recall_at_1": True, "rejection_area": True, "_rmse": False, "_mae": False, TRAIN_LOSS: False}


def larger_is_better(metric: str) -> bool | None:
    """Return whether larger values of a metric are better; None if neither direction is.

    Example:
        >>> [larger_is_better(f"eval/kappa_{what}") for what in ("rank_corr", "mae", "mean")]
        [True, False, None]
    """
    return next((is_larger for ending, is_larger in _ENDS.items() if metric.endswith(ending)), None)


_RANGES = {
    "_corr": (-1.0, 1.0), "recall_at_1": (0.0, 1.0), "rejection_area": (0.0, 1.0),
    "_rmse": (0.0, math.inf), "_mae": (0.0, math.inf),
    **dict.fromkeys(COVERAGE.values(), (0.0, 1.0)),
    MS_PER_BATCH: (0.0, math.inf), TRAIN_S: (0.0, math.inf),
}  # fmt: skip


def metric_range(metric: str) -> tuple[float, float]:
    """Return the smallest and the largest value that a metric can have; infinite where there is no bound.

    Example:
        >>> metric_range("eval/kappa_rank_corr"), metric_range("eval/kappa_mae")
        ((-1.0, 1.0), (0.0, inf))
    """
    found = (bounds for ending, bounds in _RANGES.items() if metric.endswith(ending))
    return next(found, (-math.inf, math.inf))


def plain_name(metric: str) -> str:
    """Return the short name without Greek letters."""
    return SHORT_NAMES.get(metric, metric).replace("κ", "kappa").replace("μ", "mu")


def metric_name(metric: str) -> str:
    """Return the short name, with an arrow in the better direction."""
    arrow = {True: " ↑", False: " ↓", None: ""}[larger_is_better(metric)]
    return SHORT_NAMES.get(metric, metric) + arrow
