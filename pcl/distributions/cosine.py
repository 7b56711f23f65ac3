"""Inverse CDF of the cosine mu.z under a von Mises-Fisher distribution, tabulated once per dimension.

The cosine has density proportional to exp(kappa w) (1 - w^2)^((D-3)/2) on [-1, 1]. A sampler without rejection
needs its quantile function, and the exact pathwise gradient needs that function's derivative in kappa. Three
choices make both a small table:

- the coordinate L = log tan(theta/2), with w = cos(theta) = -tanh(L) and sin(theta) = 1/cosh(L): full relative
  precision at both poles, so that kappa = 1e8 in float32 still has its digits in sin(theta);
- the argument t, a standard normal: L(t, kappa) is nearly linear in t;
- r = kappa / (kappa + k0), which maps [0, inf] to [0, 1], and M = L + log(1 + kappa/k0) / 2, which has a finite
  limit at both ends: kappa = 0 is the uniform sphere, kappa = inf the Gamma limit of kappa (1 - w). No kappa is
  outside the table.

A cubic spline in (r, t) through float64 quantiles then deviates from the true CDF by at most 2e-8 (D = 2; 3e-9 from
D = 3 on): no test on fewer than 1e14 samples could detect it. Its derivative in r is dL/dkappa at fixed t, which is the
gradient -(dF/dkappa) / f of implicit reparametrisation, with a relative bias below 1e-6 in float64.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.distributions.cosine_spline import R_CELLS, T_CELLS, T_MAX, coordinate_coefficients, vmf_coefficients
from pcl.distributions.law import EXACT_LAW, CosineLaw, SamplerGradient

Cell = tuple[Tensor, Tensor]  # index of a cell in t, and the position in it from 0 to 1


@dataclass(frozen=True)
class CosineTable:
    """Spline coefficients of M(r, t) for one dimension, dtype and device; see the module's docstring."""

    dim: int
    law: CosineLaw
    scale: float
    coefficients: Tensor  # (4 powers of the fraction in t, R_CELLS + 3 B-splines in r, T_CELLS)

    def polar(self, t: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of the angle to the mode at standard normals t; the cosine falls as t rises.

        kappa broadcasts to the shape of t; gradients reach it.
        """
        result: tuple[Tensor, Tensor] = _Polar.apply(t, kappa, self)  # type: ignore[no-untyped-call]
        return result

    def cosines(self, t: Tensor, kappa: Tensor) -> Tensor:
        """Return cosines of the angle to the mode at every t for every kappa, (n_t, *kappa); no gradients."""
        with torch.no_grad():
            return Curve(self, kappa, len(t)).cosines(locate(t))


class Curve:
    """M and its derivative in r as functions of t, for a fixed tensor of concentrations; no gradients.

    If every kappa is evaluated often, at `n_repeats` values of t, one row of the table is computed per kappa, and a
    point costs four coefficients instead of sixteen.
    """

    def __init__(self, table: CosineTable, kappa: Tensor, n_repeats: int) -> None:
        self.coefficients = table.coefficients
        self.shift = 0.5 * torch.log1p(kappa / table.scale)
        position = (1 - 1 / (1 + kappa / table.scale)) * R_CELLS
        # Converting first and clamping afterwards keeps the index in range for NaN too, whose value then propagates.
        self.r_index = position.to(torch.int32).clamp(0, R_CELLS - 1)
        self.r_fraction = position - self.r_index
        self.row = self._row(_r_weights(self.r_fraction)) if n_repeats >= T_CELLS else None

    def polar(self, cell: Cell) -> tuple[Tensor, Tensor]:
        """Return cosine and sine of the angle to the mode at the cells that `locate(t)` returns."""
        if self.row is not None:
            return self._polar(_cubic(self.row, cell, self._row_offset()))
        return self._polar(_weighted_sum(self._neighbours(cell), _r_weights(self.r_fraction)))

    def cosines(self, cells: Cell) -> Tensor:
        """Return cosines at each of the given cells, (n_cells, *kappa), from one row of the table for each cell."""
        index, fraction = cells
        rows = _power_series(self.coefficients.index_select(2, index), fraction).T.contiguous()
        at = self.r_index.flatten()
        shape = (len(index), *self.r_index.shape)
        neighbours = [rows.index_select(1, at + i).view(shape) for i in range(4)]
        return self._polar(_weighted_sum(neighbours, _r_weights(self.r_fraction)))[0]

    def polar_and_slope(self, cell: Cell) -> tuple[Tensor, Tensor, Tensor]:
        """Return cosine and sine as `polar` does, and the derivative of M in r."""
        slopes = _r_weight_slopes(self.r_fraction)
        if self.row is not None:
            return *self.polar(cell), _cubic(self._row(slopes), cell, self._row_offset()) * R_CELLS
        neighbours = self._neighbours(cell)
        value, slope = (_weighted_sum(neighbours, weights) for weights in (_r_weights(self.r_fraction), slopes))
        return *self._polar(value), slope * R_CELLS

    def _polar(self, value: Tensor) -> tuple[Tensor, Tensor]:
        tangent = torch.exp(value - self.shift)  # tan(theta/2); its square is below 1e33
        sine = 2 * tangent / (1 + tangent * tangent)
        return 1 - tangent * sine, sine

    def _neighbours(self, cell: Cell) -> list[Tensor]:
        """Return the four rows of the table around each kappa, each at t."""
        cells = self.coefficients.flatten(start_dim=1)
        return [_cubic(cells, cell, (self.r_index + i) * T_CELLS) for i in range(4)]

    def _row(self, r_weights: list[Tensor]) -> Tensor:
        """Return one row for each kappa, as cells (4, n_kappas * T_CELLS)."""
        index = self.r_index.flatten()
        rows = [self.coefficients.index_select(1, index + i) for i in range(4)]
        return _weighted_sum(rows, [weight.reshape(1, -1, 1) for weight in r_weights]).flatten(start_dim=1)

    def _row_offset(self) -> Tensor:
        n_rows = self.r_index.numel()
        return torch.arange(0, n_rows * T_CELLS, T_CELLS, device=self.r_index.device).view(self.r_index.shape)


@lru_cache(maxsize=64)
def cosine_table(dim: int, dtype: torch.dtype, device: torch.device, law: CosineLaw = EXACT_LAW) -> CosineTable:
    """Return the table of a dimension and law; the first call for a dimension takes about 0.4 s."""
    scale, coefficients = vmf_coefficients(dim, law.sampler)
    return CosineTable(dim, law, scale, torch.from_numpy(coefficients).to(device, dtype))


class CoordinateTable:
    """A map from a standard normal to one coordinate of a uniform point on the sphere S^{n-1}.

    For n = 1 the coordinate is a random sign.
    """

    def __init__(self, n: int, dtype: torch.dtype, device: torch.device) -> None:
        self.is_sign = n == 1
        if not self.is_sign:
            self.coefficients = torch.from_numpy(coordinate_coefficients(n)).to(device, dtype)
            self.start = torch.zeros((), dtype=torch.int32, device=device)

    def __call__(self, t: Tensor) -> Tensor:
        """Map standard normals of any shape to coordinates in [-1, 1]."""
        if self.is_sign:
            return torch.where(t < 0, -torch.ones_like(t), torch.ones_like(t))
        return _cubic(self.coefficients, locate(t), self.start)


@lru_cache(maxsize=64)
def coordinate_table(n: int, dtype: torch.dtype, device: torch.device) -> CoordinateTable:
    """Return the table of a sphere's coordinate, built once."""
    return CoordinateTable(n, dtype, device)


class _Polar(Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, kappa: Tensor, table: CosineTable) -> tuple[Tensor, Tensor]:
        curve = Curve(table, kappa, t.numel() // max(1, kappa.numel()))
        if not ctx.needs_input_grad[1]:
            return curve.polar(locate(t))
        if table.law.gradient is SamplerGradient.UNCORRECTED:
            cosine, sine = curve.polar(locate(t))
            log_tan_slope = table.law.uncorrected_slope(kappa, table.dim)
        else:
            cosine, sine, slope = curve.polar_and_slope(locate(t))
            grown = kappa + table.scale
            log_tan_slope = (slope * (table.scale / grown) - 0.5) / grown
        ctx.save_for_backward(sine, cosine, log_tan_slope)
        ctx.kappa_shape = kappa.shape
        return cosine, sine

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_cosine: Tensor, grad_sine: Tensor) -> tuple[None, Tensor | None, None]:
        if not ctx.needs_input_grad[1]:
            return None, None, None
        sine, cosine, log_tan_slope = ctx.saved_tensors
        grad = (grad_sine * cosine - grad_cosine * sine) * sine * log_tan_slope
        return None, grad.sum_to_size(ctx.kappa_shape), None


def locate(t: Tensor) -> Cell:
    """Return the cell of each t, and the position in it from 0 to 1."""
    position = (t * (T_CELLS / (2 * T_MAX)) + T_CELLS / 2).clamp(0, T_CELLS)
    index = position.to(torch.int32).clamp(0, T_CELLS - 1)
    return index, position - index


def _cubic(cells: Tensor, cell: Cell, offset: Tensor) -> Tensor:
    """Evaluate the cubic of each cell at the position in it; cells (4, n_cells) are coefficients of rising powers."""
    index, fraction = cell
    index = index + offset
    flat_index = index.flatten()
    return _power_series([powers.index_select(0, flat_index).view(index.shape) for powers in cells], fraction)


def _power_series(coefficients: Iterable[Tensor], fraction: Tensor) -> Tensor:
    constant, linear, square, cube = coefficients
    value = torch.addcmul(square, cube, fraction)
    value = torch.addcmul(linear, value, fraction)
    return torch.addcmul(constant, value, fraction)


def _weighted_sum(terms: list[Tensor], weights: list[Tensor]) -> Tensor:
    total = terms[0] * weights[0]
    for term, weight in zip(terms[1:], weights[1:], strict=True):
        total = torch.addcmul(total, term, weight)
    return total


def _r_weights(f: Tensor) -> list[Tensor]:
    """Return the four uniform cubic B-splines that are not zero in a cell, at the position f in it from 0 to 1."""
    g = 1 - f
    f2, g2 = f * f, g * g
    return [g2 * g / 6, 2 / 3 - f2 * (1 - f / 2), 2 / 3 - g2 * (1 - g / 2), f2 * f / 6]


def _r_weight_slopes(f: Tensor) -> list[Tensor]:
    g = 1 - f
    return [-g * g / 2, f * (1.5 * f - 2), -g * (1.5 * g - 2), f * f / 2]
