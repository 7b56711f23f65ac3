"""Retrieval by nearest neighbours: Recall@1, its rise as uncertain images are rejected, and credible images.

Cosines are compared exactly: directions are rounded to multiples of 2^-26, which is less than the error of normalising
them in float32. Their products, in units of 2^-52, are then whole numbers below 2^53, which float64 adds without error
in any order. So block size and number of threads cannot change a neighbour. Neither can the device, except through the
last bit of a direction's length. Equal cosines tie exactly.
"""
# Axes: N points, M counts of kept images, Q queries, G gallery, D dim

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

_UNITS = 2.0**26  # units per 1: the squared length of a direction is 2^52, inside float64's 2^53 whole numbers
# Cosines held at once: on a CPU 5 MB, to stay near its cache (64 rows of 10,000 points); on an accelerator 0.3 GB.
_BLOCK_CPU, _BLOCK_DEVICE = 640_000, 2**25
# Rounding of float64 cosines is below 1e-15; a threshold of 1 must still admit the query's own direction.
_COSINE_SLACK = 1e-12


class Neighbours(NamedTuple):
    """The nearest other point of each of some points."""

    rows: slice  # places of these points
    nearest: Tensor  # place of the nearest other by cosine, int64; of several, the first
    cosine: Tensor  # cosine with it, float64


@dataclass(frozen=True)
class RejectionCurve:
    """Recall@1 at every number of kept images, fewest first."""

    kept_share: Tensor  # share of the images that is kept, (M,), rising to 1
    recall: Tensor  # Recall@1 of the kept ones as queries, (M,), float64; the last entry is that of all
    area: float  # mean of `recall` over all numbers of kept images: the area under the curve


def recall_at_1(mu: Tensor, labels: Tensor) -> float:
    """Return the share of points whose nearest other point by cosine has the same label; among ties, the first counts.

    recall = 1/N sum_i [label(i) == label(argmax_{j != i} mu_i.mu_j)]

    The only point of a label counts as a miss. (The released code leaves such points out; CIFAR has none.) Directions
    mu, (N, D), may have any length; NaN is returned where one is not finite, as after divergence.

    Example:
        >>> mu = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> recall_at_1(mu, torch.tensor([0, 0, 1, 0]))
        0.5
    """
    _check(mu, labels)
    recall = _hits(mu, labels).double().mean()
    return torch.where(mu.isfinite().all(), recall, math.nan).item()


def recall_by_chance(labels: Tensor) -> float:
    """Return the share of pairs of different points that have the same label: Recall@1 of random neighbours.

    Example:
        >>> recall_by_chance(torch.tensor([0, 0, 1, 1, 1]))
        0.4
    """
    n_of_label = labels.bincount().double()
    return (n_of_label @ (n_of_label - 1)).item() / (len(labels) * (len(labels) - 1))


def rejection_curve(mu: Tensor, labels: Tensor, kappa: Tensor) -> RejectionCurve:
    """Return Recall@1 of the m images with the largest kappa, for every m: it rises if kappa predicts errors.

    recall(m) = 1/m sum_{i among the m largest kappa} [label(i) == label(nearest(i))]

    The rejected images stay in the gallery, as in the released code: each image keeps its neighbour, hit or miss, and
    the curve can only rise because misses are rejected first.

    Ties of kappa are averaged, so that the order of the input does not matter: where only some of several equal kappa
    are kept, recall(m) is the mean over the choices. Limits: if all kappa are equal, recall(m) is Recall@1 for every m.
    Everything is NaN where mu, (N, D), of any length, is not finite or kappa holds a NaN.

    Example:
        >>> mu = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
        >>> curve = rejection_curve(mu, torch.tensor([0, 0, 1, 0]), torch.tensor([8.0, 9.0, 2.0, 1.0]))
        >>> curve.recall.tolist(), round(curve.area, 4)
        ([1.0, 1.0, 0.6666666666666666, 0.5], 0.7917)
    """
    _check(mu, labels)
    if kappa.shape != labels.shape:
        raise ValueError(f"Each point needs one kappa, but got {tuple(kappa.shape)} for {len(labels)} points.")
    kappa = torch.where(mu.isfinite().all(), kappa.to(mu.device), math.nan)
    return rejection_of_hits(_hits(mu, labels), kappa)


def rejection_of_hits(is_hit: Tensor, kappa: Tensor) -> RejectionCurve:
    """Return the `rejection_curve` of points, (N,), given whether each one's nearest neighbour is a hit."""
    doubt, order = torch.sort(-kappa, stable=True)
    # Positions first..last - 1 of the order have the same kappa as position m - 1.
    first, last = torch.searchsorted(doubt, doubt), torch.searchsorted(doubt, doubt, right=True)
    hits = functional.pad(is_hit[order].cumsum(0), (1, 0))
    kept = torch.arange(1, len(kappa) + 1, device=kappa.device)
    recall = (hits[first] + (hits[last] - hits[first]) * (kept - first).double() / (last - first)) / kept
    recall = torch.where(kappa.isnan().any(), math.nan, recall)
    return RejectionCurve(kept.double() / len(kappa), recall, recall.mean().item())


def nearest_neighbours(mu: Tensor) -> Iterator[Neighbours]:
    """Yield the nearest other points of all points (N, D), N at least 2, block by block; memory grows with N alone.

    Example:
        >>> mu = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> (found,) = nearest_neighbours(mu)
        >>> found.nearest.tolist(), [round(cosine, 6) for cosine in found.cosine.tolist()]
        ([1, 2, 1], [0.6, 0.8, 0.8])
    """
    for rows, cosines in _cosines_with_others(mu):
        best = cosines.max(dim=1)
        yield Neighbours(rows, best.indices, best.values / _UNITS**2)


def credible_images(mu: Tensor, threshold: Tensor, gallery_mu: Tensor) -> Tensor:
    """Return which images of a gallery lie in the queries' credible regions {z : z.mu >= t}.

    A threshold is the (1 - p) quantile of z.mu under the query's posterior, `VonMisesFisher.credible_threshold(p)`. A
    query that is in the gallery is inside its own region. Limits: t = 1 (kappa = inf) leaves only the query's own
    direction, t = -1 (p = 1) takes the whole gallery. Directions (Q, D) and (G, D) of any length give (Q, G).

    Example:
        >>> gallery = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
        >>> credible_images(gallery[:1], torch.tensor([0.5]), gallery).tolist()
        [[True, True, False]]
    """
    if mu.ndim != 2 or gallery_mu.ndim != 2 or mu.shape[1] != gallery_mu.shape[1]:
        shapes = f"{tuple(mu.shape)} and {tuple(gallery_mu.shape)}"
        raise ValueError(f"Queries (Q, D) and gallery (G, D) must have the same dimension, but got {shapes}.")
    if threshold.shape != mu.shape[:1]:
        raise ValueError(f"Each query needs one threshold, but got {tuple(threshold.shape)} for {len(mu)}.")
    gallery = _unit(gallery_mu.to(mu.device))
    lowest = threshold.detach().to(mu.device).double().unsqueeze(1) - _COSINE_SLACK
    queries = _unit(mu)
    inside = torch.empty(len(mu), len(gallery), dtype=torch.bool, device=mu.device)
    for rows in _blocks(len(mu), len(gallery), mu.device):
        torch.ge(queries[rows] @ gallery.T, lowest[rows], out=inside[rows])
    return inside


def _hits(mu: Tensor, labels: Tensor) -> Tensor:
    """Return whether each point's nearest other point has its label, (N,)."""
    labels = labels.to(mu.device)
    return labels[_nearest(mu)] == labels


def _nearest(mu: Tensor) -> Tensor:
    """Return the index of each point's nearest other by cosine, (N,); of several, the first."""
    return torch.cat([found.nearest for found in nearest_neighbours(mu)])


def _cosines_with_others(mu: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yield rows and their exact cosines with all points, (rows, N), in units of 2^-52; -inf with themselves."""
    directions = _unit(mu).mul_(_UNITS).round_()
    for rows in _blocks(len(mu), len(mu), mu.device):
        cosines = directions[rows] @ directions.T
        cosines.diagonal(offset=rows.start).fill_(-math.inf)
        yield rows, cosines


def _unit(mu: Tensor) -> Tensor:
    return functional.normalize(mu.detach().double(), dim=-1)


def _blocks(n_rows: int, n_columns: int, device: torch.device) -> Iterator[slice]:
    size = max(1, (_BLOCK_CPU if device.type == "cpu" else _BLOCK_DEVICE) // max(n_columns, 1))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))


def _check(mu: Tensor, labels: Tensor) -> None:
    if mu.ndim != 2:
        raise ValueError(f"`mu` must be of shape (N, D), but got {tuple(mu.shape)}.")
    if len(mu) < 2:
        raise ValueError(f"At least 2 points must be given, but got {len(mu)}.")
    if labels.shape != mu.shape[:1]:
        raise ValueError(f"Each point needs one label, but got {tuple(labels.shape)} for {len(mu)} points.")
