"""Metrics of an encoder in the controlled experiment, apart from the pairs of mu."""

import torch
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.distributions.cosine import cosine_table
from pcl.metrics import names
from pcl.metrics.recovery import compare
from pcl.tasks.base import Metrics


def vmf_spread(posterior: VonMisesFisher) -> Tensor:
    """Return the mean absolute cosine to the mode, by 64 quantiles of the cosine, in the shape of the batch."""
    n = 64
    middle = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    t = torch.special.ndtri(middle).to(posterior.mu)
    table = cosine_table(posterior.dim, posterior.mu.dtype, posterior.mu.device)
    total = torch.zeros_like(posterior.kappa)
    for block in t.split(8):  # fits the caches
        for cosine in table.cosines(block, posterior.kappa):
            total += cosine.abs()
    return total / n


def kappa_metrics(kappa: Tensor, kappa_true: Tensor) -> Metrics:
    """Return the level of kappa and, if the truth is finite, its recovery."""
    level = {names.KAPPA_MEAN: kappa.mean().item(), names.KAPPA_MEDIAN: kappa.median().item()}
    if not kappa_true.isfinite().all():
        return level  # an infinite truth has no error and no ranks
    return {**level, **recovery_metrics(names.KAPPA_RECOVERY, kappa, kappa_true)}


def recovery_metrics(keys: tuple[str, ...], predicted: Tensor, true: Tensor) -> Metrics:
    """Return RMSE, MAE and rank correlation under these names."""
    return dict(zip(keys, compare(predicted, true), strict=True))
