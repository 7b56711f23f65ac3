"""Device functions of `pcl.mathematics`: log C(0)/C(kappa) by its table, similarities of concentrated posteriors."""

import os

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcl.mathematics.normalizer_table import CELL_WIDTH, CELLS, LARGEST_KAPPA, GrowthTable
from pcl.mathematics.point_limit import CONCENTRATED, CONCENTRATED_TIMES

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_CELLS, TABLE_END = tl.constexpr(CELLS), tl.constexpr(LARGEST_KAPPA)
_BLOCK = 128  # kappas per program
_HAS_PTX = tl.constexpr(torch.version.hip is None and os.environ.get("TRITON_INTERPRET", "0") == "0")
_CONCENTRATED, _CONCENTRATED_TIMES = tl.constexpr(CONCENTRATED), tl.constexpr(CONCENTRATED_TIMES)


@triton.jit
def _gathered(pointers):
    """Load numbers from anywhere in a table, each by the thread that needs it.

    `tl.load` would hand the pointers to other threads and the numbers back, through shared memory: useful where
    neighbours load neighbours, but several times the cost of everything else here.
    """
    if _HAS_PTX:
        bits = tl.inline_asm_elementwise(
            "ld.global.nc.b32 $0, [$1];", "=r,l", [pointers.to(tl.int64)], dtype=tl.int32, is_pure=True, pack=1
        )
        return bits.to(tl.float32, bitcast=True)
    return tl.load(pointers)


@triton.jit
def growth_inside(kappa, table_ptr, inverse_width):
    """Return `GrowthTable.lookup` for a kappa inside the table: the value, and the derivative A(kappa)."""
    position = kappa * inverse_width
    # Clamped after the conversion too, for NaN must not become an index out of range.
    cell = tl.minimum(tl.maximum(tl.minimum(position, _CELLS * 1.0).to(tl.int32), 0), _CELLS - 1)
    step = _gathered(table_ptr + _CELLS + cell)
    return _gathered(table_ptr + cell) + step * (position - cell), step * inverse_width


@triton.jit
def growth_beyond(kappa, table_ptr, D: tl.constexpr):
    """Return the same for a kappa beyond the table, by the expansion there."""
    first: tl.constexpr = (D - 1) / 2
    second: tl.constexpr = (D - 1) * (D - 3) / 8
    end = tl.load(table_ptr + _CELLS - 1) + tl.load(table_ptr + 2 * _CELLS - 1)
    inverse = 1.0 / kappa
    rise = kappa - TABLE_END - first * tl.log(kappa / TABLE_END) + second * (1 / TABLE_END - inverse)
    return end + rise, 1 - inverse * (first - second * inverse)


@triton.jit
def growth(kappa, table_ptr, inverse_width, D: tl.constexpr):
    """Return the same for any kappa."""
    value, slope = growth_inside(kappa, table_ptr, inverse_width)
    value_beyond, slope_beyond = growth_beyond(tl.maximum(kappa, TABLE_END), table_ptr, D)
    is_beyond = kappa > TABLE_END
    return tl.where(is_beyond, value_beyond, value), tl.where(is_beyond, slope_beyond, slope)


@triton.jit
def log_peak(kappa, table_ptr, inverse_width, D: tl.constexpr):
    """Return kappa - log C(0)/C(kappa), the log density at the mode up to a constant, with its digits at any kappa."""
    inside, _ = growth_inside(kappa, table_ptr, inverse_width)
    first: tl.constexpr = (D - 1) / 2
    second: tl.constexpr = (D - 1) * (D - 3) / 8
    end = tl.load(table_ptr + _CELLS - 1) + tl.load(table_ptr + 2 * _CELLS - 1)
    large = tl.maximum(kappa, TABLE_END)
    beyond = TABLE_END - end + first * tl.log(large / TABLE_END) - second * (1 / TABLE_END - 1 / large)
    return tl.where(kappa > TABLE_END, beyond, kappa - inside)


@triton.jit
def is_concentrated(kappa, kappa_pos):
    """Compute `point_limit.is_concentrated`."""
    return (kappa > _CONCENTRATED) & (kappa > _CONCENTRATED_TIMES * kappa_pos)


@triton.jit
def point_similarity(c, kappa, kappa_pos, D: tl.constexpr):
    """Compute `point_limit.point_similarity`: return s, its derivative in c, and that in kappa.

    The derivatives are A(rho) d rho / dc, and A(rho) (d rho / d kappa - 1) + A(rho) - A(kappa), without cancellation.
    """
    inverse = 1.0 / kappa
    q = kappa_pos * inverse
    grown = q * (2 * c + q)
    ratio = tl.sqrt(1 + grown)  # rho / kappa
    rise = kappa_pos * (2 * c + q) / (1 + ratio)
    drop = inverse * grown / (ratio * (1 + ratio))  # 1 / kappa - 1 / rho
    first: tl.constexpr = (D - 1) / 2
    second: tl.constexpr = (D - 1) * (D - 3) / 8
    s = rise - first * 0.5 * tl.log(1 + grown) + second * drop
    inverse_rho = inverse / ratio
    mean_cosine = 1 - inverse_rho * (first - second * inverse_rho)
    turned = -q * q * (1 - c * c) / (ratio * (1 + q * c + ratio))  # d rho / d kappa - 1
    d_kappa = mean_cosine * turned + drop * (first - second * (inverse + inverse_rho))
    return s, kappa_pos * mean_cosine / ratio, d_kappa


@triton.jit
def _growth_kernel(kappa_ptr, table_ptr, value_ptr, slope_ptr, n, inverse_width, D: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kappa = tl.load(kappa_ptr + index, mask=index < n, other=1.0)
    value, slope = growth(kappa, table_ptr, inverse_width, D)
    tl.store(value_ptr + index, value, mask=index < n)
    tl.store(slope_ptr + index, slope, mask=index < n)


def growth_of(kappa: Tensor, table: GrowthTable) -> tuple[Tensor, Tensor]:
    """Compute `GrowthTable.lookup` by one kernel: the value and the derivative at every kappa."""
    kappa = kappa.contiguous()
    value, slope, n = torch.empty_like(kappa), torch.empty_like(kappa), kappa.numel()
    _growth_kernel[(triton.cdiv(n, _BLOCK),)](
        kappa, table.cells, value, slope, n, 1 / CELL_WIDTH, D=table.dim, BLOCK=_BLOCK
    )
    return value, slope
