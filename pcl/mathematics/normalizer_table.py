"""A piecewise linear table of log C(0)/C(kappa), for expected similarities in the data and in the fused loss.

The function is called growth: it is 0 at kappa = 0 and grows like kappa. Its derivative is A_D.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.mathematics.point_limit import CONCENTRATED
from pcl.mathematics.special import log_vmf_normalizer

CELLS = 2**13
# The table ends where the expansion of `pcl.mathematics.point_limit` takes over.
LARGEST_KAPPA = CONCENTRATED
CELL_WIDTH = LARGEST_KAPPA / CELLS


@dataclass(frozen=True)
class GrowthTable:
    """A table up to `LARGEST_KAPPA`: the value at each cell's start, the step over the cell, its bend, (3, CELLS).

    The bend is 4 times how far the middle of a cell lies below the line between its ends.
    """

    cells: Tensor
    dim: int

    def __call__(self, kappa: Tensor) -> Tensor:
        """Return log C(0)/C(kappa), with gradients.

        At D = 10 the error is below 2e-4, that of the derivative below 7e-3; both are largest near 0. Beyond the table
        its limit is the precision of float32. Differences of two such values have fewer digits the larger kappa is:
        use `point_similarity` for those.
        """
        result: Tensor = _Growth.apply(kappa, self.lookup)  # type: ignore[no-untyped-call]
        return result

    def curved(self, kappa: Tensor) -> Tensor:
        """Return the same by `lookup_curved`."""
        result: Tensor = _Growth.apply(kappa, self.lookup_curved)  # type: ignore[no-untyped-call]
        return result

    def lookup(self, kappa: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value and the derivative at kappa."""
        (start, step), at = self._cell_of(kappa, self.cells[:2])
        return self._extended(kappa, torch.addcmul(start, step, at), step / CELL_WIDTH)

    def lookup_curved(self, kappa: Tensor) -> tuple[Tensor, Tensor]:
        """Return the same by a parabola in each cell, without gradients; see `curved`.

        At D = 10, the derivative is 400 times as exact, for a third more time.
        """
        (start, step, bend), at = self._cell_of(kappa, self.cells)
        inner = step.sub_(bend).addcmul_(bend, at)
        value = start.addcmul_(inner, at)
        return self._extended(kappa, value, inner.addcmul_(bend, at).div_(CELL_WIDTH))

    def _cell_of(self, kappa: Tensor, rows: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the rows' entries at each kappa's cell, and its position in the cell."""
        position = kappa / CELL_WIDTH
        # Bounded again after the conversion: NaN must not become an index out of range.
        cell = position.clamp(max=CELLS).to(torch.int32).clamp_(0, CELLS - 1)
        # On a CPU, ten times as fast as an index in brackets.
        return [row.index_select(0, cell.flatten()).view(kappa.shape) for row in rows], position.sub_(cell)

    def _extended(self, kappa: Tensor, value: Tensor, slope: Tensor) -> tuple[Tensor, Tensor]:
        """Return value and derivative, replaced where kappa is beyond the table."""
        if kappa.device.type == "cpu" and (kappa.numel() == 0 or kappa.max() <= LARGEST_KAPPA):
            return value, slope  # on a GPU, this test would wait for the device
        is_beyond = kappa > LARGEST_KAPPA
        end = self.cells[0, -1] + self.cells[1, -1]
        value_beyond, slope_beyond = self._beyond(kappa.clamp(min=LARGEST_KAPPA))
        return torch.where(is_beyond, end + value_beyond, value), torch.where(is_beyond, slope_beyond, slope)

    def _beyond(self, kappa: Tensor) -> tuple[Tensor, Tensor]:
        """Return the integral of A from `LARGEST_KAPPA` to kappa, by its expansion for large kappa, and A(kappa)."""
        first, second = (self.dim - 1) / 2, (self.dim - 1) * (self.dim - 3) / 8
        inverse = 1 / kappa
        integral = (
            kappa - LARGEST_KAPPA - first * (kappa / LARGEST_KAPPA).log() + second * (1 / LARGEST_KAPPA - inverse)
        )
        return integral, 1 - first * inverse + second * inverse.square()


class _Growth(Function):
    @staticmethod
    def forward(ctx: Any, kappa: Tensor, lookup: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        value, slope = lookup(kappa)
        ctx.save_for_backward(slope)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return grad * slope, None


@lru_cache(maxsize=64)
def growth_table(dim: int, device: torch.device) -> GrowthTable:
    """Return the table of a dimension, built once."""
    nodes = torch.linspace(0, LARGEST_KAPPA, CELLS + 1, dtype=torch.float64)
    log_c = log_vmf_normalizer(nodes, dim)
    growth = log_c[0] - log_c
    step = growth.diff()
    change = step.diff() / 2  # at the nodes between cells
    # The first bend makes the function even in kappa, so that A(kappa) / kappa has its limit at 0.
    bend = torch.cat([step[:1], (change[:-1] + change[1:]) / 2, change[-1:]])
    return GrowthTable(torch.stack([growth[:-1], step, bend]).float().to(device), dim)
