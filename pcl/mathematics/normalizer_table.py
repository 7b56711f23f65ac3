"""A piecewise linear table of log C(0)/C(kappa), for expected similarities in the data and in the fused loss.

The function is called growth: it is 0 at kappa = 0 and grows like kappa. Its derivative is A_D.
"""

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
    """A table up to `LARGEST_KAPPA`: the value at each cell's start and the step over the cell, (2, CELLS)."""

    cells: Tensor
    dim: int

    def __call__(self, kappa: Tensor) -> Tensor:
        """Return log C(0)/C(kappa), with gradients.

        At D = 10 the error is below 2e-4, that of the derivative below 6e-3; both are largest near 0. Beyond the table
        its limit is the precision of float32. Differences of two such values have fewer digits the larger kappa is:
        take `point_similarity` for those.
        """
        result: Tensor = _Growth.apply(kappa, self)  # type: ignore[no-untyped-call]
        return result

    def lookup(self, kappa: Tensor) -> tuple[Tensor, Tensor]:
        """Return the value and the derivative at kappa."""
        position = kappa / CELL_WIDTH
        # Bounded again after the conversion: NaN must not become an index out of range.
        cell = position.clamp(max=CELLS).to(torch.int32).clamp(0, CELLS - 1)
        start, step = self.cells[0][cell], self.cells[1][cell]
        value, slope = torch.addcmul(start, step, position - cell), step / CELL_WIDTH
        is_beyond = kappa > LARGEST_KAPPA
        if is_beyond.device.type == "cpu" and not is_beyond.any():  # a GPU would have to be waited for
            return value, slope
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
    def forward(ctx: Any, kappa: Tensor, table: GrowthTable) -> Tensor:
        value, slope = table.lookup(kappa)
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
    return GrowthTable(torch.stack([growth[:-1], growth.diff()]).float().to(device), dim)
