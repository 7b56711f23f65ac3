"""MCInfoNCE with integrated partners by a table of log C, in float32, as training computes it on a CPU.

Its reference is `MCInfoNCE`, which evaluates log C in float64 for every similarity; on CUDA, `pcl.kernels.integrated`
computes the same. With g(k) = log C(0)/C(k), the similarity of a sample z and a partner (mu, kappa) is
s = g(R) - g(kappa), R = |kappa mu + kappa_pos z|.

For each similarity to negatives that a whole batch shares, the forward pass keeps two numbers: w, the softmax over the
negatives, and v = w A(R) / R. Every gradient is then a matrix product, since dR/dc = kappa kappa_pos / R with
c = mu.z, and the sum over m of u_m v_mn c_mn is mu_n times that of u_m v_mn z_m.

Axes: S samples, B anchors, M = S B, N negatives, D dim.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable
from torch.utils.checkpoint import checkpoint

from pcl.distributions import VonMisesFisher
from pcl.mathematics.normalizer_table import LARGEST_KAPPA, GrowthTable, growth_table
from pcl.mathematics.point_limit import is_concentrated, is_nearly_a_point, point_similarity

_BLOCK = 2**17  # similarities at a time: about what a core's cache holds
_HELD = 2**24  # similarities kept for a run's backward pass, in 128 MB; beyond, they are computed again


def is_tabulated(negatives: VonMisesFisher) -> bool:
    """Return whether tables can be used: for negatives (1, N) that the batch shares, in float32 on a CPU."""
    return len(negatives.kappa) == 1 and negatives.mu.device.type == "cpu" and negatives.mu.dtype is torch.float32


def mean_cosine(kappa: Tensor, dim: int) -> Tensor:
    """Return A(kappa), the mean cosine of a vMF to its mode, without gradients."""
    return growth_table(dim, kappa.device).lookup_curved(kappa.detach())[1]


def log_ratio(law: VonMisesFisher, other: VonMisesFisher, z: Tensor, kappa_pos: Tensor | float) -> Tensor:
    """Return the log of the ratio of two densities at samples (S, B, D); 0 for laws that are nearly a point."""
    if any(bool((d.kappa > LARGEST_KAPPA).any()) for d in (law, other)):
        exact = law.log_prob(z) - other.log_prob(z)
        return torch.where(is_nearly_a_point(law.kappa, kappa_pos), 0.0, exact)
    growth = growth_table(law.dim, z.device).curved
    own, others = (d.kappa * (z * d.mu).sum(-1) - growth(d.kappa) for d in (law, other))
    return own - others


def log_similarity(partner: VonMisesFisher, cosine: Tensor, kappa_pos: Tensor | float) -> Tensor:
    """Return log E e^{kappa_pos z.z'} over z' ~ vMF(mu', kappa') at cosines z.mu', to which the batch broadcasts."""
    is_point = is_concentrated(partner.kappa, kappa_pos)
    kappa, growth = torch.where(is_point, 1.0, partner.kappa), growth_table(partner.dim, cosine.device).curved
    squares = kappa.square() + kappa_pos**2 + 2 * kappa_pos * kappa * cosine
    closed = growth(squares.clamp(min=1e-12).sqrt()) - growth(kappa)
    if not is_point.any():
        return closed
    point = torch.where(is_point, partner.kappa, torch.inf)
    return torch.where(is_point, point_similarity(point, cosine, kappa_pos, partner.dim), closed)


def log_mean_over_negatives(z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor | float) -> Tensor:
    """Return log 1/N sum_n e^{s_n} of every sample, (M,), for samples (M, D), modes (N, D) and kappas (N,)."""
    n_rows = max(1, _HELD // len(kappa))
    if len(z) <= n_rows:
        return _log_total(z, mu, kappa, kappa_pos) - math.log(len(kappa))
    again = partial(checkpoint, _log_total, use_reentrant=False, preserve_rng_state=False)
    return torch.cat([again(part, mu, kappa, kappa_pos) for part in z.split(n_rows)]) - math.log(len(kappa))


def _log_total(z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor | float) -> Tensor:
    """Return log sum_n e^{s_n}, with the limit of s for concentrated negatives."""
    is_point = is_concentrated(kappa, kappa_pos)
    if not is_point.any():
        return _log_sum(z, mu, kappa, kappa_pos)
    limits = torch.logsumexp(point_similarity(kappa[is_point], z @ mu[is_point].T, kappa_pos, z.shape[-1]), -1)
    if is_point.all():
        return limits
    return torch.logaddexp(limits, _log_sum(z, mu[~is_point], kappa[~is_point], kappa_pos))


def _log_sum(z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor | float) -> Tensor:
    scale = torch.as_tensor(kappa_pos, dtype=z.dtype, device=z.device)
    result: Tensor = _LogSum.apply(z, mu, kappa, scale, growth_table(z.shape[-1], z.device))  # type: ignore[no-untyped-call]
    return result


class _LogSum(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor, table: GrowthTable) -> Tensor:
        own, own_slope = table.lookup_curved(kappa)
        across = (2 * kappa_pos * kappa).unsqueeze(-1) * mu
        squares = kappa.square() + kappa_pos.square()
        out, weight, pull = z.new_empty(len(z)), z.new_empty(len(z), len(mu)), z.new_empty(len(z), len(mu))
        n_rows = max(1, _BLOCK // len(mu))
        for part, log_total, w, v in zip(*(t.split(n_rows) for t in (z, out, weight, pull)), strict=True):
            resultant = torch.addmm(squares, part, across.T).clamp_(min=1e-12).sqrt_()
            similarity, slope = table.lookup_curved(resultant)
            similarity -= own
            top = similarity.amax(-1, keepdim=True)
            torch.exp(similarity.sub_(top), out=w)
            total = w.sum(-1, keepdim=True)
            w.div_(total)
            torch.div(slope.mul_(w), resultant, out=v)
            log_total.copy_((top + total.log()).squeeze(-1))
        ctx.save_for_backward(z, mu, kappa, kappa_pos, own_slope, weight, pull)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        z, mu, kappa, kappa_pos, own_slope, weight, pull = ctx.saved_tensors
        scale = kappa * kappa_pos
        d_z = upstream.unsqueeze(-1) * (pull @ (scale.unsqueeze(-1) * mu))
        moved = pull.T @ (upstream.unsqueeze(-1) * z)
        total, along = pull.T @ upstream, (moved * mu).sum(-1)
        d_kappa = kappa * total + kappa_pos * along - own_slope * (weight.T @ upstream)
        d_kappa_pos = kappa_pos * total.sum() + (kappa * along).sum()
        return d_z, scale.unsqueeze(-1) * moved, d_kappa, d_kappa_pos, None
