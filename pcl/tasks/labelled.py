"""Folds, size checks and metrics shared by tasks with labels.

Axes: R runs, n items, D dim, C classes.
"""

import torch
from torch import Tensor

from pcl.data.folds import N_FOLDS
from pcl.encoders import Encoder
from pcl.metrics.names import TEST, TEST_CHANCE, TEST_REJECTION, VAL, VAL_CHANCE
from pcl.metrics.retrieval import recall_at_1, recall_by_chance, rejection_curve
from pcl.metrics.uncertainty import entropy, rank_corr_with_uncertainty
from pcl.tasks.base import Metrics

_LEAST_JUDGED = 3  # fewest items with meaningful ranks
_BLOCK, _CUDA_BLOCK = 500, 2_000  # images encoded at once


def check_folds(fold: int, n_eval: int) -> None:
    """Raise a ValueError unless `task.fold` and `task.n_eval` are possible."""
    if not 0 <= fold < N_FOLDS:
        raise ValueError(f"`0 <= task.fold <= {N_FOLDS - 1}` must hold, but got {fold}.")
    if n_eval < _LEAST_JUDGED:
        raise ValueError(f"`task.n_eval >= {_LEAST_JUDGED}` must hold, but got {n_eval}.")


def check_size(name: str, n: int, things: str) -> None:
    """Raise a ValueError unless a set has enough items for all folds."""
    least = N_FOLDS * _LEAST_JUDGED
    if n < least:
        raise ValueError(
            f"{name!r} must have at least {least} {things}, {_LEAST_JUDGED} for each of {N_FOLDS} folds, but has {n}."
        )


def has_entropy(shares: Tensor) -> bool:
    """Return whether the entropy of shares (n, C) varies; if not, its metrics are undefined."""
    spread = entropy(shares)
    return bool(spread.min() < spread.max())


def label_metrics(split: str, mu: Tensor, kappa: Tensor, labels: Tensor, entropies: Tensor | None) -> Metrics:
    """Return the metrics of modes (n, D) and concentrations (n,) by labels and, where it varies, by entropy (n,)."""
    _, of_entropy, recall = VAL if split == "val" else TEST
    found = {} if entropies is None else {of_entropy: rank_corr_with_uncertainty(kappa, entropies)}
    found[recall] = recall_at_1(mu, labels)
    found[VAL_CHANCE if split == "val" else TEST_CHANCE] = recall_by_chance(labels)
    if split != "val":
        found[TEST_REJECTION] = rejection_curve(mu, labels, kappa).area
    return found | {f"{split}/kappa_mean": kappa.mean().item(), f"{split}/kappa_median": kappa.median().item()}


@torch.no_grad()
def encoded(encoder: Encoder, by_run: list[Tensor], block: int | None = None) -> list[tuple[Tensor, Tensor]]:
    """Return modes (n, D) and concentrations (n,) of each run's images or features, in evaluation mode.

    Runs are encoded side by side; those with fewer items repeat their last one. `block` items are encoded at once, by
    default a number that is fast for images.
    """
    longest = max(len(things) for things in by_run)
    x = torch.stack([torch.cat([i, i[-1:].expand(longest - len(i), *i.shape[1:])]) for i in by_run])
    block = block or (_CUDA_BLOCK if x.is_cuda else _BLOCK)
    was_training = encoder.training
    encoder.eval()
    try:
        posteriors = [encoder(part) for part in x.split(block, dim=1)]
    finally:
        encoder.train(was_training)
    mu, kappa = (torch.cat([getattr(p, name) for p in posteriors], dim=1) for name in ("mu", "kappa"))
    return [(mu[run, : len(i)], kappa[run, : len(i)]) for run, i in enumerate(by_run)]
