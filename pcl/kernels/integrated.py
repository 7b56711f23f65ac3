"""MCInfoNCE with integrated partners and shared negatives: log mean_n of the similarities, without storing them.

For a sample z of an anchor and a negative (mu, kappa), the similarity is s = g(rho) - g(kappa), g(k) = log C(0)/C(k),
rho = |kappa mu + kappa_pos z|. The first kernel goes over rows (samples z) and returns log mean_n e^s with its
gradients in z and kappa_pos; the second goes over columns (negatives) and returns those in mu and kappa. Beyond the
table of g, blocks take its expansion; where kappa itself is beyond, similarities are those of
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

from pcl.mathematics.normalizer_table import CELL_WIDTH, CELLS, LARGEST_KAPPA, GrowthTable
from pcl.mathematics.point_limit import CONCENTRATED, CONCENTRATED_TIMES

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_CELLS, _LARGEST = tl.constexpr(CELLS), tl.constexpr(LARGEST_KAPPA)
_POINT, _TIMES_KAPPA_POS = tl.constexpr(CONCENTRATED), tl.constexpr(CONCENTRATED_TIMES)
_SPLITS = 8  # parts of the rows; each part of a column's sum has its own program


@triton.jit
def _cell(position):
    """Return the index of a cell; clamped after the conversion too, for NaN must not become an index out of range."""
    return tl.minimum(tl.maximum(tl.minimum(position, _CELLS * 1.0).to(tl.int32), 0), _CELLS - 1)


@triton.jit
def _similarity(c, kappa, growth_kappa, kappa_pos, table_ptr, inverse_width, has_far, D: tl.constexpr):
    """Return s and A(rho) / rho."""
    rho = tl.sqrt(tl.maximum(kappa * kappa + kappa_pos * kappa_pos + 2 * kappa_pos * kappa * c, 1e-12))
    position = rho * inverse_width
    cell = _cell(position)
    step = tl.load(table_ptr + _CELLS + cell)
    growth = tl.load(table_ptr + cell) + step * (position - cell)
    mean_cosine = step * inverse_width
    if has_far:
        end = tl.load(table_ptr + _CELLS - 1) + tl.load(table_ptr + 2 * _CELLS - 1)
        growth_beyond, mean_cosine_beyond = _beyond(rho, D)
        growth = tl.where(rho > _LARGEST, end + growth_beyond, growth)
        mean_cosine = tl.where(rho > _LARGEST, mean_cosine_beyond, mean_cosine)
    return growth - growth_kappa, mean_cosine / rho


@triton.jit
def _has_far(kappa, kappa_pos):
    """Return whether rho can be beyond the table."""
    return tl.max(kappa, axis=0) + kappa_pos > _LARGEST


@triton.jit
def _beyond(kappa, D: tl.constexpr):
    """Compute `GrowthTable._beyond`: the integral of A from the table's end to kappa, and A(kappa)."""
    first: tl.constexpr = (D - 1) / 2
    second: tl.constexpr = (D - 1) * (D - 3) / 8
    inverse = 1.0 / kappa
    growth = kappa - _LARGEST - first * tl.log(kappa / _LARGEST) + second * (1 / _LARGEST - inverse)
    return growth, 1 - inverse * (first - second * inverse)


@triton.jit
def _point_similarity(c, kappa, kappa_pos, D: tl.constexpr):
    """Compute `point_limit.point_similarity`: return s, its derivative in c, and that in kappa.

    The derivatives are A(rho) d rho / dc, and A(rho) (d rho / d kappa - 1) + A(rho) - A(kappa), without cancellation.
    """
    inverse = 1.0 / kappa
    q = kappa_pos * inverse
    growth = q * (2 * c + q)
    ratio = tl.sqrt(1 + growth)  # rho / kappa
    rise = kappa_pos * (2 * c + q) / (1 + ratio)
    drop = inverse * growth / (ratio * (1 + ratio))  # 1 / kappa - 1 / rho
    first: tl.constexpr = (D - 1) / 2
    second: tl.constexpr = (D - 1) * (D - 3) / 8
    s = rise - first * 0.5 * tl.log(1 + growth) + second * drop
    inverse_rho = inverse / ratio
    mean_cosine = 1 - inverse_rho * (first - second * inverse_rho)
    turned = -q * q * (1 - c * c) / (ratio * (1 + q * c + ratio))  # d rho / d kappa - 1
    d_kappa = mean_cosine * turned + drop * (first - second * (inverse + inverse_rho))
    return s, kappa_pos * mean_cosine / ratio, d_kappa


@triton.jit
def _is_point(kappa, kappa_pos):
    return (kappa > _POINT) & (kappa > _TIMES_KAPPA_POS * kappa_pos)


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
        growth = tl.load(growth_ptr + run * n + column, mask=is_column, other=0.0)
        c = tl.dot(z, tl.trans(mu), input_precision="tf32x3")
        has_far = _has_far(kappa, kappa_pos)
        s, slope = _similarity(c, kappa[None, :], growth[None, :], kappa_pos, table_ptr, inverse_width, has_far, D)
        is_point = _is_point(kappa, kappa_pos)
        has_point = tl.max(is_point.to(tl.int32), axis=0) > 0
        if has_point:
            limit, _, _ = _point_similarity(c, kappa[None, :], kappa_pos, D)
            s = tl.where(is_point[None, :], limit, s)
        s = tl.where(is_column[None, :], s, -float("inf"))
        new_top = tl.maximum(top, tl.max(s, axis=1))
        fade = tl.exp(top - new_top)
        share = tl.exp(s - new_top[:, None])
        total = total * fade + tl.sum(share, axis=1)
        pull = share * slope * kappa[None, :] * kappa_pos
        if has_point:
            _, d_cosine, _ = _point_similarity(c, kappa[None, :], kappa_pos, D)
            pull = tl.where(is_point[None, :], share * d_cosine, pull)
        grad = grad * fade[:, None] + tl.dot(pull, mu, input_precision="tf32x3")
        if IS_LEARNED:  # d rho / d kappa_pos is to d rho / dc as kappa_pos + kappa c to kappa_pos kappa
            turned = pull * (c / kappa_pos + 1.0 / kappa[None, :])
            d_kappa_pos = d_kappa_pos * fade + tl.sum(turned, axis=1)
        top = new_top
    tl.store(out_ptr + run * m + row, top + tl.log(total) - log_n, mask=row < m)
    tl.store(grad_ptr + at, grad / total[:, None], mask=is_entry)
    if IS_LEARNED:
        tl.store(d_kappa_pos_ptr + run * m + row, d_kappa_pos / total, mask=row < m)


@triton.jit
def _columns_kernel(
    z_ptr, mu_ptr, kappa_ptr, growth_ptr, table_ptr, kappa_pos_ptr, out_ptr, upstream_ptr, d_kappa_ptr, d_mu_ptr,
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
    growth = tl.load(growth_ptr + run * n + column, mask=is_column, other=0.0)
    kappa_pos = tl.load(kappa_pos_ptr + run)
    is_point = _is_point(kappa, kappa_pos)
    has_point = tl.max(is_point.to(tl.int32), axis=0) > 0
    has_far = _has_far(kappa, kappa_pos)
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
        s, slope = _similarity(c, kappa[None, :], growth[None, :], kappa_pos, table_ptr, inverse_width, has_far, D)
        if has_point:
            limit, _, _ = _point_similarity(c, kappa[None, :], kappa_pos, D)
            s = tl.where(is_point[None, :], limit, s)
        weight = tl.where(is_row[:, None], tl.exp(s - (log_mean + log_n)[:, None]) * upstream[:, None], 0.0)
        along = weight * slope * (kappa[None, :] + kappa_pos * c)
        own = tl.sum(weight, axis=0) * _slope(kappa, table_ptr, inverse_width, D)
        across = weight * slope * kappa[None, :] * kappa_pos
        if has_point:
            _, d_cosine, d_point = _point_similarity(c, kappa[None, :], kappa_pos, D)
            along = tl.where(is_point[None, :], weight * d_point, along)
            own = tl.where(is_point, 0.0, own)
            across = tl.where(is_point[None, :], weight * d_cosine, across)
        d_kappa += tl.sum(along, axis=0)
        d_kappa -= own
        d_mu += tl.dot(tl.trans(across), z, input_precision="tf32x3")
    offset = (split * n_runs + run) * n + column
    tl.store(d_kappa_ptr + offset, d_kappa, mask=is_column)
    tl.store(d_mu_ptr + offset[:, None] * D + d[None, :], d_mu, mask=is_mu)


@triton.jit
def _slope(kappa, table_ptr, inverse_width, D: tl.constexpr):
    cell = _cell(kappa * inverse_width)
    _, beyond = _beyond(kappa, D)
    return tl.where(kappa > _LARGEST, beyond, tl.load(table_ptr + _CELLS + cell) * inverse_width)


class _LogMean(Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor, table: GrowthTable) -> Tensor:
        z, mu, kappa = z.contiguous(), mu.contiguous(), kappa.contiguous()
        n_runs, m, dim = z.shape
        n = mu.shape[1]
        growth, _ = table.lookup(kappa)
        out, grad_z = z.new_empty(n_runs, m), torch.empty_like(z)
        is_learned = ctx.needs_input_grad[3]
        d_kappa_pos = torch.empty_like(out) if is_learned else None
        sizes = _sizes(dim)
        _rows_kernel[(triton.cdiv(m, sizes["BM"]), n_runs)](
            z, mu, kappa, growth, table.cells, kappa_pos, out, grad_z, d_kappa_pos, m, 1 / CELL_WIDTH, math.log(n),
            IS_LEARNED=is_learned, n=n, D=dim, **sizes,
        )  # fmt: skip
        ctx.save_for_backward(z, mu, kappa, growth, kappa_pos, out, grad_z, d_kappa_pos)
        ctx.table = table
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        z, mu, kappa, growth, kappa_pos, out, grad_z, d_kappa_pos = ctx.saved_tensors
        n_runs, m, dim = z.shape
        n = mu.shape[1]
        d_kappa, d_mu = kappa.new_empty(_SPLITS, n_runs, n), mu.new_empty(_SPLITS, n_runs, n, dim)
        sizes = _sizes(dim)
        _columns_kernel[(triton.cdiv(n, sizes["BN"]), _SPLITS, n_runs)](
            z, mu, kappa, growth, ctx.table.cells, kappa_pos, out, upstream.contiguous(), d_kappa, d_mu,
            m, n, 1 / CELL_WIDTH, math.log(n), n_runs,
            PART=triton.cdiv(m, _SPLITS), D=dim, **sizes,
        )  # fmt: skip
        of_kappa_pos = None if d_kappa_pos is None else (d_kappa_pos * upstream).sum(-1)
        return grad_z * upstream.unsqueeze(-1), d_mu.sum(0), d_kappa.sum(0), of_kappa_pos, None


def _sizes(dim: int) -> dict[str, int]:
    return {"BD": max(16, triton.next_power_of_2(dim)), "BM": 32, "BN": 32}


def log_mean_similarity(z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor, table: GrowthTable) -> Tensor:
    """Return log 1/N sum_n e^{s_n} for every row, (R, M).

    Samples z are (R, M, D), the negatives' mu (R, N, D) and kappa (R, N), and kappa_pos is (R,); gradients reach all.
    """
    result: Tensor = _LogMean.apply(z, mu, kappa, kappa_pos, table)  # type: ignore[no-untyped-call]
    return result
