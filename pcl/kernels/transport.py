"""The inverse CDF of `pcl.distributions.cosine` as one polynomial per concentration, for the fused kernels.

A kernel uses each kappa hundreds of times, so it pays to reduce the table to a curve first: with t a standard normal,
log tan(theta/2) = sum_p q_p(kappa) t^p. Its derivative in kappa at fixed t, which the pathwise gradient needs, is a
second such polynomial. Both are tabulated over r = kappa / (kappa + scale) and interpolated by cubics. A polynomial of
degree 11 deviates from the table by 3e-7 (root mean square over t; D = 10), 1e-4 at D = 4, and too much for smaller D.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.interpolate import CubicSpline
from torch import Tensor

from pcl.distributions import CosineLaw, Sampler, SamplerGradient
from pcl.distributions.cosine_spline import coordinate_quantiles, shifted_quantiles, table_scale

DEGREE = 11
N_COEFFICIENTS = DEGREE + 1
SMALLEST_DIM = 4
R_CELLS = 256
# Normal variates of the kernels come from 24-bit numbers: none is beyond 5.9.
_T_FIT = 5.9


@dataclass(frozen=True)
class TransportTable:
    """Polynomials of log tan(theta/2) for one dimension and law."""

    scale: float  # k0 in r = kappa / (kappa + k0)
    # (R_CELLS + 3, 2, N_COEFFICIENTS) at r = -1/R_CELLS ... 1 + 1/R_CELLS: q_p + log(1 + kappa/k0)/2 for p = 0 and q_p
    # else; and (kappa + k0) dq_p/dkappa.
    nodes: Tensor
    # (N_COEFFICIENTS,), the polynomial of log tan of half the angle whose cosine is one coordinate of a uniform tangent
    # direction.
    tangent: Tensor


@lru_cache(maxsize=64)
def transport_table(dim: int, law: CosineLaw, device: torch.device) -> TransportTable:
    """Return the table of a dimension and law, in float32; the first call takes about a second.

    Raises:
        ValueError: For a dimension below `SMALLEST_DIM`.
    """
    if dim < SMALLEST_DIM:
        raise ValueError(f"`dim >= {SMALLEST_DIM}` must hold for the fused kernels, but got {dim}.")
    scale, nodes, tangent = _fit(dim, law)
    # Kernels read them by address, in the order of C, which not every NumPy operation keeps.
    as_tensor = [torch.from_numpy(array.astype(np.float32, order="C")).to(device) for array in (nodes, tangent)]
    return TransportTable(scale, as_tensor[0], as_tensor[1])


@lru_cache(maxsize=64)
def _fit(dim: int, law: CosineLaw) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    scale, values = table_scale(dim), _fitted_quantiles(dim, law.sampler)
    r = np.linspace(0.0, 1.0, R_CELLS + 1)
    if law.gradient is SamplerGradient.EXACT:
        # dr/dkappa = (1 - r) / (kappa + k0), and M = L + log(1 + kappa/k0) / 2
        slopes = CubicSpline(r, values)(r, 1) * (1 - r)[:, None]
        slopes[:, 0] -= 0.5
    else:
        slopes = np.zeros_like(values)
        kappa = torch.from_numpy(scale * r / np.maximum(1 - r, 1e-9))
        slopes[:, 0] = (law.uncorrected_slope(kappa, dim) * (kappa + scale)).numpy()
    nodes = np.stack([values, slopes], axis=1)
    before, after = (3 * nodes[a] - 3 * nodes[b] + nodes[c] for a, b, c in ((0, 1, 2), (-1, -2, -3)))
    padded = np.concatenate([before[None], nodes, after[None]])
    tangent = _polynomials(coordinate_quantiles(dim - 1, _t_fitted())[None])[0]
    tangent[::2] = 0  # the law is symmetric: only rounding errors are left there
    return scale, padded, tangent


@lru_cache(maxsize=64)
def _fitted_quantiles(dim: int, sampler: Sampler) -> NDArray[np.float64]:
    """Return the polynomials of M at every node in r, which all gradients of a sampler share; do not modify them."""
    return _polynomials(shifted_quantiles(dim, sampler, _t_fitted(), R_CELLS))


def _t_fitted() -> NDArray[np.float64]:
    return np.linspace(-_T_FIT, _T_FIT, 801)


def _polynomials(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fit polynomials by least squares, weighted towards likely t: (n, N_COEFFICIENTS) of rising powers."""
    t = _t_fitted()
    weight = np.exp(-t * t / 4) + 1e-3
    basis = np.polynomial.chebyshev.chebvander(t / _T_FIT, DEGREE)
    fit, *_ = np.linalg.lstsq(basis * weight[:, None], (values * weight).T, rcond=None)
    powers: NDArray[np.float64] = _powers_of_chebyshev(fit.astype(np.float64)).T / _T_FIT ** np.arange(N_COEFFICIENTS)
    return powers


def _powers_of_chebyshev(fit: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return Chebyshev series, a column each, as power series: numpy's `cheb2poly` of all columns at once."""
    lower, upper = np.zeros_like(fit), np.zeros_like(fit)
    lower[0], upper[0] = fit[-2], fit[-1]
    for row in fit[-3::-1]:
        lower, upper = -upper, lower + 2 * _times_x(upper)
        lower[0] += row
    return lower + _times_x(upper)


def _times_x(series: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = np.roll(series, 1, axis=0)
    shifted[0] = 0
    return shifted
