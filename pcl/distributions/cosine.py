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
D = 3 on): no test on fewer than 1e14 samples could tell. Its derivative in r is dL/dkappa at fixed t, which is the
gradient -(dF/dkappa) / f of implicit reparametrisation, with a relative bias below 2e-7.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.distributions.cosine_spline import R_CELLS, T_CELLS, T_MAX, coordinate_coefficients, vmf_coefficients


@dataclass(frozen=True)
class CosineTable:
    """Spline coefficients of M(r, t) for one dimension, dtype and device; see the top of this file."""

    dim: int
    scale: float
    coefficients: Tensor  # (4 powers of the fraction in t, R_CELLS + 3 B-splines in r, T_CELLS)

    def polar(self, t: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of the angle to the mode, from standard normals.

        Args:
            t: Standard normals. The cosine falls as t rises.
            kappa: Concentrations that broadcast to the shape of t. Gradients reach kappa.
        """
        result: tuple[Tensor, Tensor] = _Polar.apply(t, kappa, self)  # type: ignore[no-untyped-call]
        return result

    def curve(self, kappa: Tensor, n_repeats: int) -> "Curve":
        """The functions of t that belong to these kappas, to be evaluated at n_repeats values of t each."""
        return Curve(self, kappa, n_repeats)


class Curve:
    """M as a function of t, for a fixed tensor of concentrations; no gradients.

    Where every kappa is asked for often, one row of the table is made for each, and a point costs four coefficients
    instead of sixteen.
    """

    def __init__(self, table: CosineTable, kappa: Tensor, n_repeats: int) -> None:
        self.coefficients = table.coefficients
        self.shift = 0.5 * torch.log1p(kappa / table.scale)
        position = (1 - 1 / (1 + kappa / table.scale)) * R_CELLS
        # Converting first and bounding afterwards keeps the index in range for NaN too, whose value then flows through.
        self.r_index = position.to(torch.int32).clamp(0, R_CELLS - 1)
        self.r_fraction = position - self.r_index
        self.has_rows = n_repeats >= T_CELLS
        self.value_terms = self._terms(_r_weights(self.r_fraction))

    def polar(self, cell: "tuple[Tensor, Tensor]") -> tuple[Tensor, Tensor]:
        """Cosine and sine of the angle to the mode at the cells and fractions of `locate(t)`."""
        tangent = torch.exp(_evaluate(self.value_terms, *cell) - self.shift)  # of theta/2; its square is below 1e33
        sine = 2 * tangent / (1 + tangent * tangent)
        return 1 - tangent * sine, sine

    def slope(self, cell: "tuple[Tensor, Tensor]") -> Tensor:
        """The derivative of M in r."""
        return _evaluate(self._terms(_r_weight_slopes(self.r_fraction)), *cell) * R_CELLS

    def _terms(self, r_weights: list[Tensor]) -> list["_Term"]:
        if not self.has_rows:
            flat = self.coefficients.flatten(start_dim=1)
            return [(flat, (self.r_index + i) * T_CELLS, weight) for i, weight in enumerate(r_weights)]
        index = self.r_index.flatten()
        rows = torch.zeros_like(self.coefficients[:, :1]).expand(-1, index.numel(), -1)
        for i, weight in enumerate(r_weights):
            rows = torch.addcmul(rows, self.coefficients.index_select(1, index + i), weight.reshape(1, -1, 1))
        offset = torch.arange(index.numel(), device=index.device) * T_CELLS
        return [(rows.flatten(start_dim=1), offset.view(self.r_index.shape), None)]


# coefficients (4, n) of rising powers, offset into them, and weight (None: 1) of one term of a sum of cubics
_Term = tuple[Tensor, Tensor, Tensor | None]


@lru_cache(maxsize=64)
def cosine_table(dim: int, dtype: torch.dtype, device: torch.device) -> CosineTable:
    """The table of a dimension; the first use of a dimension takes about 0.4 s."""
    scale, coefficients = vmf_coefficients(dim)
    return CosineTable(dim, scale, torch.from_numpy(coefficients).to(device, dtype))


class CoordinateTable:
    """Transport from a standard normal to one coordinate of a uniform point on the sphere S^{n-1}.

    For n = 1 the coordinate is a random sign.
    """

    def __init__(self, n: int, dtype: torch.dtype, device: torch.device) -> None:
        self.is_sign = n == 1
        if not self.is_sign:
            self.coefficients = torch.from_numpy(coordinate_coefficients(n)).to(device, dtype)

    def __call__(self, t: Tensor) -> Tensor:
        """Map standard normals of any shape to coordinates in [-1, 1]."""
        if self.is_sign:
            return torch.where(t < 0, -torch.ones_like(t), torch.ones_like(t))
        return _cubic(self.coefficients, *locate(t))


@lru_cache(maxsize=64)
def coordinate_table(n: int, dtype: torch.dtype, device: torch.device) -> CoordinateTable:
    """The table of a sphere's coordinate, built once."""
    return CoordinateTable(n, dtype, device)


class _Polar(Function):
    @staticmethod
    def forward(ctx: Any, t: Tensor, kappa: Tensor, table: CosineTable) -> tuple[Tensor, Tensor]:
        curve = table.curve(kappa, t.numel() // max(1, kappa.numel()))
        cell = locate(t)
        cosine, sine = curve.polar(cell)
        if ctx.needs_input_grad[1]:
            grown = kappa + table.scale
            log_tan_slope = (curve.slope(cell) * (table.scale / grown) - 0.5) / grown
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


def locate(t: Tensor) -> tuple[Tensor, Tensor]:
    """Cell of the table and fraction of it, for each t."""
    position = (t * (T_CELLS / (2 * T_MAX)) + T_CELLS / 2).clamp(0, T_CELLS)
    index = position.to(torch.int32).clamp(0, T_CELLS - 1)
    return index, position - index


def _evaluate(terms: list[_Term], index: Tensor, fraction: Tensor) -> Tensor:
    total: Tensor | None = None
    for coefficients, offset, weight in terms:
        value = _cubic(coefficients, index + offset, fraction)
        value = value if weight is None else value * weight
        total = value if total is None else total + value
    assert total is not None
    return total


def _cubic(coefficients: Tensor, index: Tensor, fraction: Tensor) -> Tensor:
    """The cubic of each cell at a fraction of it. Coefficients (4, n_cells), of rising powers."""
    flat_index = index.flatten()
    constant, linear, square, cube = (c.index_select(0, flat_index).view(index.shape) for c in coefficients)
    value = torch.addcmul(square, cube, fraction)
    value = torch.addcmul(linear, value, fraction)
    return torch.addcmul(constant, value, fraction)


def _r_weights(f: Tensor) -> list[Tensor]:
    """The four uniform cubic B-splines that are not zero in a cell, at the fraction f of it."""
    g = 1 - f
    f2, g2 = f * f, g * g
    return [g2 * g / 6, 2 / 3 - f2 * (1 - f / 2), 2 / 3 - g2 * (1 - g / 2), f2 * f / 6]


def _r_weight_slopes(f: Tensor) -> list[Tensor]:
    g = 1 - f
    return [-g * g / 2, f * (1.5 * f - 2), -g * (1.5 * g - 2), f * f / 2]
