"""MCInfoNCE with integrated partners and shared negatives: log mean_n of the similarities, without storing them.

For a sample z of an anchor and a negative (mu, kappa), the similarity is s = g(rho) - g(kappa), g(k) = log C(0)/C(k),
rho = |kappa mu + kappa_pos z|. The first kernel goes over rows (samples z) and returns log mean_n e^s with its
gradients in z and kappa_pos; the second goes over columns (negatives) and returns those in mu and kappa. Beyond the
table of g, blocks use its expansion; where kappa itself is beyond, similarities are those of
`pcl.mathematics.point_limit`.

Axes: R runs, M rows (samples of all anchors of a run), N negatives, D dim.
"""

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.kernels.integrated.normalizer import (
    TABLE_END,
    growth,
    growth_beyond,
    growth_inside,
    growth_of,
    is_concentrated,
    point_similarity,
)
from pcl.mathematics.normalizer_table import CELL_WIDTH, GrowthTable

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_SPLITS = 8  # parts of the rows; each part of a column's sum has its own program


@triton.jit
def _similarity(c, kappa, own, kappa_pos, table_ptr, inverse_width, has_far, D: tl.constexpr):
    """Return s and A(rho) / rho; `own` is g(kappa)."""
    rho = tl.sqrt(tl.maximum(kappa * kappa + kappa_pos * kappa_pos + 2 * kappa_pos * kappa * c, 1e-12))
    value, mean_cosine = growth_inside(rho, table_ptr, inverse_width)
    if has_far:
        value_beyond, mean_cosine_beyond = growth_beyond(rho, table_ptr, D)
        value = tl.where(rho > TABLE_END, value_beyond, value)
        mean_cosine = tl.where(rho > TABLE_END, mean_cosine_beyond, mean_cosine)
    return value - own, mean_cosine / rho


@triton.jit
def _has_far(kappa, kappa_pos):
    """Return whether rho can be beyond the table."""
    return tl.max(kappa, axis=0) + kappa_pos > TABLE_END


@triton.jit
def _rows_kernel(
    z_ptr, mu_ptr, kappa_ptr, growth_ptr, table_ptr, kappa_pos_ptr, out_ptr, grad_ptr, d_kappa_pos_ptr,
    m, inverse_width, log_n,
    IS_LEARNED: tl.constexpr, n: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(1)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    at = (run * m + row[:, None]) * D + d[None, :]
    is_entry = (row < m)[:, None] & (d < D)[None, :]
    z = tl.load(z_ptr + at, mask=is_entry, other=0.0)
    kappa_pos = tl.load(kappa_pos_ptr + run)
    top = tl.full([BM], -float("inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    grad = tl.zeros([BM, BD], tl.float32)
    d_kappa_pos = tl.zeros([BM], tl.float32)
    for start in range(0, n, BN):
        column = start + tl.arange(0, BN)
        is_column = column < n
        mu = tl.load(
            mu_ptr + (run * n + column[:, None]) * D + d[None, :], mask=is_column[:, None] & (d < D)[None, :], other=0.0
        )
        kappa = tl.load(kappa_ptr + run * n + column, mask=is_column, other=1.0)
        own = tl.load(growth_ptr + run * n + column, mask=is_column, other=0.0)
        c = tl.dot(z, tl.trans(mu), input_precision="tf32x3")
        has_far = _has_far(kappa, kappa_pos)
        s, slope = _similarity(c, kappa[None, :], own[None, :], kappa_pos, table_ptr, inverse_width, has_far, D)
        is_point = is_concentrated(kappa, kappa_pos)
        has_point = tl.max(is_point.to(tl.int32), axis=0) > 0
        if has_point:
            limit, _, _ = point_similarity(c, kappa[None, :], kappa_pos, D)
            s = tl.where(is_point[None, :], limit, s)
        s = tl.where(is_column[None, :], s, -float("inf"))
        new_top = tl.maximum(top, tl.max(s, axis=1))
        fade = tl.exp(top - new_top)
        share = tl.exp(s - new_top[:, None])
        total = total * fade + tl.sum(share, axis=1)
        pull = share * slope * kappa[None, :] * kappa_pos
        if has_point:
            _, d_cosine, _ = point_similarity(c, kappa[None, :], kappa_pos, D)
            pull = tl.where(is_point[None, :], share * d_cosine, pull)
        grad = grad * fade[:, None] + tl.dot(pull, mu, input_precision="tf32x3")
        if IS_LEARNED:  # d rho / d kappa_pos is to d rho / dc as kappa_pos + kappa c to kappa_pos kappa
            turned = pull * (c / kappa_pos + 1.0 / tl.maximum(kappa, 1e-20)[None, :])
            d_kappa_pos = d_kappa_pos * fade + tl.sum(turned, axis=1)
        top = new_top
    tl.store(out_ptr + run * m + row, top + tl.log(total) - log_n, mask=row < m)
    tl.store(grad_ptr + at, grad / total[:, None], mask=is_entry)
    if IS_LEARNED:
        tl.store(d_kappa_pos_ptr + run * m + row, d_kappa_pos / total, mask=row < m)


@triton.jit
def _columns_kernel(
    z_ptr, mu_ptr, kappa_ptr, table_ptr, kappa_pos_ptr, out_ptr, upstream_ptr, d_kappa_ptr, d_mu_ptr,
    m, n, inverse_width, log_n, n_runs,
    PART: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    run = tl.program_id(2)
    split = tl.program_id(1)
    column = tl.program_id(0) * BN + tl.arange(0, BN)
    is_column = column < n
    d = tl.arange(0, BD)
    is_mu = is_column[:, None] & (d < D)[None, :]
    mu = tl.load(mu_ptr + (run * n + column[:, None]) * D + d[None, :], mask=is_mu, other=0.0)
    kappa = tl.load(kappa_ptr + run * n + column, mask=is_column, other=1.0)
    kappa_pos = tl.load(kappa_pos_ptr + run)
    is_point = is_concentrated(kappa, kappa_pos)
    has_point = tl.max(is_point.to(tl.int32), axis=0) > 0
    has_far = _has_far(kappa, kappa_pos)
    own, own_slope = growth(kappa, table_ptr, inverse_width, D)
    d_kappa = tl.zeros([BN], tl.float32)
    d_mu = tl.zeros([BN, BD], tl.float32)
    for start in range(0, PART, BM):
        row = split * PART + start + tl.arange(0, BM)
        is_row = (row < m) & (row < (split + 1) * PART)
        z = tl.load(
            z_ptr + (run * m + row[:, None]) * D + d[None, :], mask=is_row[:, None] & (d < D)[None, :], other=0.0
        )
        log_mean = tl.load(out_ptr + run * m + row, mask=is_row, other=0.0)
        upstream = tl.load(upstream_ptr + run * m + row, mask=is_row, other=0.0)
        c = tl.dot(z, tl.trans(mu), input_precision="tf32x3")
        s, slope = _similarity(c, kappa[None, :], own[None, :], kappa_pos, table_ptr, inverse_width, has_far, D)
        if has_point:
            limit, _, _ = point_similarity(c, kappa[None, :], kappa_pos, D)
            s = tl.where(is_point[None, :], limit, s)
        weight = tl.where(is_row[:, None], tl.exp(s - (log_mean + log_n)[:, None]) * upstream[:, None], 0.0)
        along = weight * slope * (kappa[None, :] + kappa_pos * c)
        falling = tl.sum(weight, axis=0) * own_slope
        across = weight * slope * kappa[None, :] * kappa_pos
        if has_point:
            _, d_cosine, d_point = point_similarity(c, kappa[None, :], kappa_pos, D)
            along = tl.where(is_point[None, :], weight * d_point, along)
            falling = tl.where(is_point, 0.0, falling)
            across = tl.where(is_point[None, :], weight * d_cosine, across)
        d_kappa += tl.sum(along, axis=0)
        d_kappa -= falling
        d_mu += tl.dot(tl.trans(across), z, input_precision="tf32x3")
    offset = (split * n_runs + run) * n + column
    tl.store(d_kappa_ptr + offset, d_kappa, mask=is_column)
    tl.store(d_mu_ptr + offset[:, None] * D + d[None, :], d_mu, mask=is_mu)


class _LogMean(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor, table: GrowthTable) -> Tensor:
        z, mu, kappa = z.contiguous(), mu.contiguous(), kappa.contiguous()
        n_runs, m, dim = z.shape
        n = mu.shape[1]
        out, grad_z = z.new_empty(n_runs, m), torch.empty_like(z)
        is_learned = ctx.needs_input_grad[3]
        d_kappa_pos = torch.empty_like(out) if is_learned else None
        sizes = _sizes(dim)
        _rows_kernel[(triton.cdiv(m, sizes["BM"]), n_runs)](
            z, mu, kappa, growth_of(kappa, table)[0], table.cells, kappa_pos, out, grad_z, d_kappa_pos,
            m, 1 / CELL_WIDTH, math.log(n), IS_LEARNED=is_learned, n=n, D=dim, **sizes,
        )  # fmt: skip
        ctx.save_for_backward(z, mu, kappa, kappa_pos, out, grad_z, d_kappa_pos)
        ctx.table = table
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        z, mu, kappa, kappa_pos, out, grad_z, d_kappa_pos = ctx.saved_tensors
        n_runs, m, dim = z.shape
        n = mu.shape[1]
        d_kappa, d_mu = kappa.new_empty(_SPLITS, n_runs, n), mu.new_empty(_SPLITS, n_runs, n, dim)
        sizes = _sizes(dim)
        _columns_kernel[(triton.cdiv(n, sizes["BN"]), _SPLITS, n_runs)](
            z, mu, kappa, ctx.table.cells, kappa_pos, out, upstream.contiguous(), d_kappa, d_mu,
            m, n, 1 / CELL_WIDTH, math.log(n), n_runs,
            PART=triton.cdiv(m, _SPLITS), D=dim, **sizes,
        )  # fmt: skip
        of_kappa_pos = None if d_kappa_pos is None else (d_kappa_pos * upstream).sum(-1)
        return grad_z * upstream.unsqueeze(-1), d_mu.sum(0), d_kappa.sum(0), of_kappa_pos, None


def _sizes(dim: int) -> dict[str, int]:
    """Return the sizes of a program; with more than two warps, several would compute the same 32 rows."""
    return {"BD": max(16, triton.next_power_of_2(dim)), "BM": 32, "BN": 16, "num_warps": 2, "num_stages": 1}


def log_mean_similarity(z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor, table: GrowthTable) -> Tensor:
    """Return log 1/N sum_n e^{s_n} for every row, (R, M).

    Samples z are (R, M, D), the negatives' mu (R, N, D) and kappa (R, N), and kappa_pos is (R,); gradients reach all.
    """
    result: Tensor = _LogMean.apply(z, mu, kappa, kappa_pos, table)  # type: ignore[no-untyped-call]
    return result
