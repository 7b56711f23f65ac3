"""One kernel that computes both polynomials of every concentration."""

import triton
import triton.language as tl
from torch import Tensor

from pcl.kernels.transport import N_COEFFICIENTS, R_CELLS, TransportTable

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_N_COEFFICIENTS = tl.constexpr(N_COEFFICIENTS)
_R_CELLS = tl.constexpr(R_CELLS)
_POINT = tl.constexpr(1e30)  # float32 does not tell such a posterior from a point
_BLOCK = 64  # concentrations per program


@triton.jit
def _curves_kernel(kappa_ptr, nodes_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    kappa = tl.load(kappa_ptr + index, mask=inside, other=1.0)
    kappa = tl.where(kappa > _POINT, _POINT, kappa)  # an infinite one would be NaN, and NaN must stay NaN
    grown = kappa + scale
    position = (kappa / grown) * _R_CELLS
    cell = tl.minimum(tl.maximum(position.to(tl.int32), 0), _R_CELLS - 1)
    f = position - cell
    w0 = -f * (f - 1) * (f - 2) / 6
    w1 = (f + 1) * (f - 1) * (f - 2) / 2
    w2 = -(f + 1) * f * (f - 2) / 2
    w3 = (f + 1) * f * (f - 1) / 6
    row = nodes_ptr + cell * (2 * _N_COEFFICIENTS)
    for p in range(2 * _N_COEFFICIENTS):
        value = w0 * tl.load(row + p) + w1 * tl.load(row + 2 * _N_COEFFICIENTS + p)
        value += w2 * tl.load(row + 4 * _N_COEFFICIENTS + p) + w3 * tl.load(row + 6 * _N_COEFFICIENTS + p)
        value = tl.where(p == 0, value - 0.5 * tl.log(1 + kappa / scale), value)
        value = tl.where(p >= _N_COEFFICIENTS, value / grown, value)
        tl.store(out_ptr + p * n + index, value, mask=inside)


def curves(table: TransportTable, kappa: Tensor) -> Tensor:
    """Return both polynomials for every kappa, (2 N_COEFFICIENTS, n): of the value and of its derivative in kappa."""
    n = kappa.numel()
    out = kappa.new_empty(2 * N_COEFFICIENTS, n)
    _curves_kernel[(triton.cdiv(n, _BLOCK),)](kappa.contiguous(), table.nodes, out, table.scale, n, BLOCK=_BLOCK)
    return out
