"""Terms of guided samples: the weight of each and its similarity to the positive, with gradients.

The term of a sample z of an anchor is log Q(z) - log G(z) + s(z, positive), with the anchor's posterior Q, the law G
that z is drawn from, and the expected similarity s of `pcl.losses.mc_info_nce.log_mean_similarity`.

Axes: R runs, K samples, B anchors, D dim; a program has BA anchors of all runs, numbered r B + b.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.distributions import VonMisesFisher
from pcl.kernels.integrated.normalizer import growth, is_concentrated, log_peak, point_similarity
from pcl.kernels.integrated.samples import anchors_of, place_of, sizes_of
from pcl.mathematics.normalizer_table import CELL_WIDTH, GrowthTable
from pcl.mathematics.point_limit import NEARLY_A_POINT, TIMES_KAPPA_POS

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_NEARLY_A_POINT, _POINT_TIMES = tl.constexpr(NEARLY_A_POINT), tl.constexpr(TIMES_KAPPA_POS)


@triton.jit
def _nearly_a_point(kappa, kappa_pos):
    return (kappa > _NEARLY_A_POINT) & (kappa > _POINT_TIMES * kappa_pos)


@triton.jit
def _partner(c, kappa, kappa_pos, table_ptr, inverse_width, D: tl.constexpr):
    """Return the expected similarity of a sample and a partner, its derivative in c, and that in kappa."""
    rho = tl.sqrt(tl.maximum(kappa * kappa + kappa_pos * kappa_pos + 2 * kappa_pos * kappa * c, 1e-12))
    value, mean_cosine = growth(rho, table_ptr, inverse_width, D)
    own, own_slope = growth(kappa, table_ptr, inverse_width, D)
    limit, d_limit, d_limit_kappa = point_similarity(c, kappa, kappa_pos, D)
    is_point = is_concentrated(kappa, kappa_pos)
    slope = mean_cosine / rho
    s = tl.where(is_point, limit, value - own)
    d_kappa = tl.where(is_point, d_limit_kappa, slope * (kappa + kappa_pos * c) - own_slope)
    return s, tl.where(is_point, d_limit, slope * kappa * kappa_pos), d_kappa


@triton.jit
def _terms_kernel(
    z_ptr, mu_ptr, kappa_ptr, mode_ptr, guide_ptr, partner_ptr, partner_kappa_ptr, kappa_pos_ptr, table_ptr, out_ptr,
    inverse_width, n_anchors, batch_size, K: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(1)
    anchor, is_anchor, d, inside = anchors_of(n_anchors, D, BD, BA)
    of_anchor = anchor[:, None] * D + d[None, :]
    place = place_of(anchor, sample, batch_size, K)
    z = tl.load(z_ptr + place[:, None] * D + d[None, :], mask=inside, other=0.0)
    kappa_pos = tl.load(kappa_pos_ptr + anchor // batch_size, mask=is_anchor, other=1.0)
    kappa = tl.load(kappa_ptr + anchor, mask=is_anchor, other=1.0)
    guide = tl.load(guide_ptr + anchor, mask=is_anchor, other=1.0)
    partner_kappa = tl.load(partner_kappa_ptr + anchor, mask=is_anchor, other=1.0)
    is_weighted = _nearly_a_point(kappa, kappa_pos) == 0
    # 1 - mu.z as half a squared distance: kappa times it keeps its digits where mu.z rounds to 1.
    from_mu = z - tl.load(mu_ptr + of_anchor, mask=inside, other=0.0)
    from_mode = z - tl.load(mode_ptr + of_anchor, mask=inside, other=0.0)
    own = log_peak(kappa, table_ptr, inverse_width, D) - 0.5 * kappa * tl.sum(from_mu * from_mu, axis=1)
    drawn = log_peak(guide, table_ptr, inverse_width, D) - 0.5 * guide * tl.sum(from_mode * from_mode, axis=1)
    c = tl.sum(z * tl.load(partner_ptr + of_anchor, mask=inside, other=0.0), axis=1)
    s, _, _ = _partner(c, partner_kappa, kappa_pos, table_ptr, inverse_width, D)
    tl.store(out_ptr + place, tl.where(is_weighted, own - drawn, 0.0) + s, mask=is_anchor)


@triton.jit
def _terms_gradient_kernel(
    z_ptr, mu_ptr, kappa_ptr, mode_ptr, guide_ptr, partner_ptr, partner_kappa_ptr, kappa_pos_ptr, table_ptr,
    upstream_ptr, d_z_ptr, d_vectors_ptr, d_scalars_ptr,
    inverse_width, n_anchors, batch_size, K: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    anchor, is_anchor, d, inside = anchors_of(n_anchors, D, BD, BA)
    of_anchor = anchor[:, None] * D + d[None, :]
    mu = tl.load(mu_ptr + of_anchor, mask=inside, other=0.0)
    mode = tl.load(mode_ptr + of_anchor, mask=inside, other=0.0)
    partner = tl.load(partner_ptr + of_anchor, mask=inside, other=0.0)
    kappa_pos = tl.load(kappa_pos_ptr + anchor // batch_size, mask=is_anchor, other=1.0)
    kappa = tl.load(kappa_ptr + anchor, mask=is_anchor, other=1.0)
    guide = tl.load(guide_ptr + anchor, mask=is_anchor, other=1.0)
    partner_kappa = tl.load(partner_kappa_ptr + anchor, mask=is_anchor, other=1.0)
    is_weighted = _nearly_a_point(kappa, kappa_pos) == 0
    kappa = tl.where(is_weighted, kappa, 0.0)
    guide = tl.where(is_weighted, guide, 0.0)
    _, own_slope = growth(kappa, table_ptr, inverse_width, D)
    _, drawn_slope = growth(guide, table_ptr, inverse_width, D)
    d_mu = tl.zeros([BA, BD], tl.float32)  # and, up to a factor, the gradient in the mode
    d_partner = tl.zeros([BA, BD], tl.float32)
    d_kappa = tl.zeros([BA], tl.float32)
    d_guide = tl.zeros([BA], tl.float32)
    d_partner_kappa = tl.zeros([BA], tl.float32)
    d_kappa_pos = tl.zeros([BA], tl.float32)
    for sample in range(K):
        place = place_of(anchor, sample, batch_size, K)
        z = tl.load(z_ptr + place[:, None] * D + d[None, :], mask=inside, other=0.0)
        upstream = tl.load(upstream_ptr + place, mask=is_anchor, other=0.0)
        c = tl.sum(z * partner, axis=1)
        _, d_cosine, d_s = _partner(c, partner_kappa, kappa_pos, table_ptr, inverse_width, D)
        pull = upstream * d_cosine
        d_z = (upstream * kappa)[:, None] * mu - (upstream * guide)[:, None] * mode + pull[:, None] * partner
        tl.store(d_z_ptr + place[:, None] * D + d[None, :], d_z, mask=inside)
        d_mu += upstream[:, None] * z
        d_partner += pull[:, None] * z
        d_kappa += upstream * (tl.sum(z * mu, axis=1) - own_slope)
        d_guide -= upstream * (tl.sum(z * mode, axis=1) - drawn_slope)
        d_partner_kappa += upstream * d_s
        d_kappa_pos += pull * (c / kappa_pos + 1 / tl.maximum(partner_kappa, 1e-20))  # see `log_mean`
    n = n_anchors * D
    tl.store(d_vectors_ptr + of_anchor, kappa[:, None] * d_mu, mask=inside)
    tl.store(d_vectors_ptr + n + of_anchor, -guide[:, None] * d_mu, mask=inside)
    tl.store(d_vectors_ptr + 2 * n + of_anchor, d_partner, mask=inside)
    tl.store(d_scalars_ptr + anchor, tl.where(is_weighted, d_kappa, 0.0), mask=is_anchor)
    tl.store(d_scalars_ptr + n_anchors + anchor, tl.where(is_weighted, d_guide, 0.0), mask=is_anchor)
    tl.store(d_scalars_ptr + 2 * n_anchors + anchor, d_partner_kappa, mask=is_anchor)
    tl.store(d_scalars_ptr + 3 * n_anchors + anchor, d_kappa_pos, mask=is_anchor)


class _Terms(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, *given: Any) -> Tensor:
        *tensors, table = given
        tensors = [tensor.contiguous() for tensor in tensors]
        n_runs, n_samples, batch_size, dim = z.shape
        out, n = z.new_empty(n_runs, n_samples, batch_size), n_runs * batch_size
        sizes = sizes_of(dim)
        _terms_kernel[(triton.cdiv(n, sizes["BA"]), n_samples)](
            z, *tensors, table.cells, out, 1 / CELL_WIDTH, n, batch_size, K=n_samples, D=dim, **sizes
        )
        ctx.save_for_backward(z, *tensors)
        ctx.table = table
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        z, *tensors = ctx.saved_tensors
        n_runs, n_samples, batch_size, dim = z.shape
        d_z, d_vectors = torch.empty_like(z), z.new_empty(3, n_runs, batch_size, dim)
        d_scalars, n = z.new_empty(4, n_runs, batch_size), n_runs * batch_size
        sizes = sizes_of(dim)
        _terms_gradient_kernel[(triton.cdiv(n, sizes["BA"]),)](
            z, *tensors, ctx.table.cells, upstream.contiguous(), d_z, d_vectors, d_scalars,
            1 / CELL_WIDTH, n, batch_size, K=n_samples, D=dim, **sizes,
        )  # fmt: skip
        (d_mu, d_mode, d_partner), (d_kappa, d_guide, d_partner_kappa, d_kappa_pos) = d_vectors, d_scalars
        return d_z, d_mu, d_kappa, d_mode, d_guide, d_partner, d_partner_kappa, d_kappa_pos.sum(-1), None


def log_terms(
    z: Tensor, anchor: VonMisesFisher, guide: VonMisesFisher, positive: VonMisesFisher, kappa_pos: Tensor,
    table: GrowthTable,
) -> Tensor:  # fmt: skip
    """Return the terms of samples (R, K, B, D) that the guide has drawn, (R, K, B), for laws with the batch (R, B).

    kappa_pos is (R,). An anchor that is nearly a point guides itself, and its samples weigh 1. Gradients reach all.
    """
    given = (anchor.mu, anchor.kappa, guide.mu, guide.kappa, positive.mu, positive.kappa)
    result: Tensor = _Terms.apply(z.contiguous(), *given, kappa_pos, table)  # type: ignore[no-untyped-call]
    return result
