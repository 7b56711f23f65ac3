"""Straightforward implementations that the benchmarks compare with.

Axes: S samples, B anchors, N negatives, D dim.
"""

import math

import torch
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.losses import mc_info_nce


def wood_sample(mu: Tensor, kappa: float, n: int) -> Tensor:
    """Draw samples (n, D) of vMF(mu, kappa) by Wood's rejection scheme (1994), each round on those not yet accepted."""
    m = len(mu) - 1
    b = m / (2 * kappa + math.sqrt(4 * kappa**2 + m**2))
    x0 = (1 - b) / (1 + b)
    c = kappa * x0 + m * math.log1p(-(x0**2))
    proposal = torch.distributions.Beta(torch.tensor(m / 2), torch.tensor(m / 2))
    cosine = torch.empty(n)
    waiting = torch.arange(n)
    while len(waiting):
        beta = proposal.sample((len(waiting),))
        candidate = (1 - (1 + b) * beta) / (1 - (1 - b) * beta)
        log_u = torch.rand(len(waiting)).log()
        accepted = kappa * candidate + m * torch.log(1 - x0 * candidate) - c >= log_u
        cosine[waiting[accepted]] = candidate[accepted]
        waiting = waiting[~accepted]
    tangent = torch.nn.functional.normalize(torch.randn(n, m), dim=-1)
    sine = (1 - cosine.square()).clamp(min=0).sqrt()
    around_first_axis = torch.cat([cosine.unsqueeze(-1), sine.unsqueeze(-1) * tangent], dim=-1)
    axis = mu.clone()
    axis[0] -= 1
    norm = axis.norm()
    if norm < 1e-6:
        return around_first_axis
    axis /= norm
    return around_first_axis - 2 * (around_first_axis @ axis).unsqueeze(-1) * axis


def mc_info_nce_of_whole_samples(
    anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher, n_samples: int, kappa_pos: float
) -> Tensor:
    """Compute MCInfoNCE (B,) with every sample of every posterior in memory, (S, B, N, D) for the negatives."""
    z, z_positive, z_negatives = (d.rsample((n_samples,)) for d in (anchor, positive, negatives))
    similar = kappa_pos * (z * z_positive).sum(-1)
    dissimilar = kappa_pos * (z.unsqueeze(2) * z_negatives).sum(-1)
    return mc_info_nce(similar, dissimilar, positive_weight=1 / negatives.batch_shape[-1])
