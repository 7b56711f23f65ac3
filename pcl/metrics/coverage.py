"""Tests of whether posteriors are right: coverage of true latents by credible caps, and the line of kappa-hat.

Contrastive learning recovers the latent space only up to an orthogonal map. The learned modes are first aligned with
the true ones by the map that brings them closest.

Axes: R runs, n points, D dim.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Line(NamedTuple):
    """A straight line."""

    slope: float
    intercept: float


def aligned(mu: Tensor, mu_true: Tensor) -> Tensor:
    """Return unit vectors mu Q, with the orthogonal Q (reflections included) that minimises |mu Q - mu_true|^2.

    Q = U V^T for the singular value decomposition U S V^T of mu^T mu_true. Both sets are (R, n, D). A run whose mu is
    not finite stays as it is.

    Example:
        >>> mu_true = torch.eye(3).unsqueeze(0)
        >>> mirrored = mu_true * torch.tensor([1.0, -1.0, 1.0])
        >>> bool(torch.allclose(aligned(mirrored, mu_true), mu_true))
        True
    """
    if mu.ndim != 3 or mu.shape != mu_true.shape:
        raise ValueError(f"Both sets must have one shape (R, n, D), but got {tuple(mu.shape)}, {tuple(mu_true.shape)}.")
    # On the CPU: R small matrices, for which an accelerator would take longer.
    product = (mu.mT.double() @ mu_true.double()).cpu()
    is_finite = product.isfinite().all(-1).all(-1).view(-1, 1, 1)
    u, _, vh = torch.linalg.svd(torch.where(is_finite, product, torch.eye(mu.shape[-1], dtype=product.dtype)))
    aligning: Tensor = u @ vh
    return mu @ aligning.to(mu)


def coverage(mu: Tensor, threshold: Tensor, z: Tensor) -> Tensor:
    """Return the share of points with z.mu >= t for each run and threshold, (L, R), in float64.

    Args:
        mu: Modes (R, n, D), aligned with the space of z.
        threshold: Bounds t of the caps (L, R, n), such as `VonMisesFisher.credible_threshold(p)` of L levels p.
        z: Latents (R, n, D).
    """
    return ((mu * z).sum(-1) >= threshold).double().mean(-1)


def least_squares(y: Tensor, x: Tensor) -> Line:
    """Return the line y = slope x + intercept through n points with the least squared error; NaN for a constant x.

    Example:
        >>> least_squares(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0.0, 1.0, 2.0]))
        Line(slope=2.0, intercept=1.0)
    """
    x, y = x.double(), y.double()
    centred = x - x.mean()
    square = centred.square().sum().item()
    slope = (centred @ y).item() / square if square > 0 else math.nan
    return Line(slope, y.mean().item() - slope * x.mean().item())
