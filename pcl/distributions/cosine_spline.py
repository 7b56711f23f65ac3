"""Tables of `pcl.distributions.cosine`, built in float64: quantiles by quadrature and Newton, then splines."""

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import special

from pcl.distributions.law import Sampler, released_log_density

Array = NDArray[np.float64]
LogDensity = Callable[[Array, Array], Array]  # (2 M, kappa) -> log density up to a constant

# Powers of two keep the cell's index exact. Doubling the cells in r lowers the gradient's bias sixfold (D = 2);
# doubling the cells in t changes only the error of the CDF (2e-8 to 1e-9 at D = 2).
R_CELLS = 256
T_CELLS = 256
# |t| > 8 has probability 1.2e-15; such a t is clamped to 8.
T_MAX = 8.0
# Kappas whose quantiles are computed at once: with 12 nodes per quantile, they fit into a processor's cache.
_ROWS = 8
_NODES, _GAUSS = np.polynomial.legendre.leggauss(12)
# A kappa that stands for infinity where a law is only defined for finite kappa.
_FINITE = 1e9


@lru_cache(maxsize=64)
def vmf_coefficients(dim: int, sampler: Sampler) -> tuple[float, Array]:
    """Return the scale k0 and the coefficients (4, R_CELLS + 3, T_CELLS) of a `CosineTable`."""
    quantiles = shifted_quantiles(dim, sampler, _t_nodes(), R_CELLS)
    powers = np.stack([power.T for power in _powers(_spline(quantiles).T)])
    return table_scale(dim), np.ascontiguousarray(powers)  # a table in another order would be copied at every use


@lru_cache(maxsize=64)
def coordinate_coefficients(n: int) -> Array:
    """Return the coefficients (4, T_CELLS) of a `CoordinateTable`."""
    return np.stack(_powers(-np.tanh(coordinate_quantiles(n, _t_nodes()))))


def table_scale(dim: int) -> float:
    """Return k0 in r = kappa / (kappa + k0).

    A k0 of the order of the dimension puts the transition near r = 1/2. Of (D-1)/2 + 1, 2 and 4, the 2 is best at
    D = 2, where the error is largest.
    """
    return (dim - 1) / 2 + 2.0


def shifted_quantiles(dim: int, sampler: Sampler, t: Array, n_cells: int) -> Array:
    """Return M at the probabilities Phi(t), for r from 0 to 1 in n_cells steps: (n_cells + 1, n_t)."""
    scale = table_scale(dim)
    r = np.linspace(0.0, 1.0, n_cells + 1)
    with np.errstate(divide="ignore"):
        kappas = scale * r / (1 - r)
    if sampler is Sampler.EXACT:
        return 0.5 * log_tan_sq_quantiles(t, kappas, scale, (dim - 1) / 2)

    def log_density(shifted: Array, kappa: Array) -> Array:
        kappa = np.minimum(kappa, _FINITE)
        return released_log_density(shifted - np.log1p(kappa / scale), kappa, dim)

    return 0.5 * _quantiles(t, kappas, log_density)


def coordinate_quantiles(n: int, t: Array) -> Array:
    """Return log tan(theta/2) at the probabilities Phi(t), cos(theta) a coordinate uniform on S^{n-1}: (n_t,)."""
    quantiles: Array = 0.5 * log_tan_sq_quantiles(t, np.zeros(1), 1.0, (n - 1) / 2)[0]
    return quantiles


def _t_nodes() -> Array:
    return np.linspace(-T_MAX, T_MAX, T_CELLS + 1)


def _spline(values: Array) -> Array:
    """Return coefficients over axis 0 of the uniform cubic spline through n+1 values, not-a-knot ends: (n+3, ...)."""
    n = len(values) - 1
    matrix = np.zeros((n + 3, n + 3))
    for row in range(n + 1):
        matrix[row, row : row + 3] = 1 / 6, 2 / 3, 1 / 6
    fourth_difference = [1.0, -4.0, 6.0, -4.0, 1.0]
    matrix[n + 1, :5] = fourth_difference
    matrix[n + 2, -5:] = fourth_difference
    right = np.concatenate([values, np.zeros((2, *values.shape[1:]))])
    return np.linalg.solve(matrix, right)


def _powers(values: Array) -> list[Array]:
    """Return the same spline as one cubic per cell: coefficients of rising powers, each (n_cells, ...)."""
    spline = _spline(values)
    c0, c1, c2, c3 = (spline[i : len(spline) - 3 + i] for i in range(4))
    return [(c0 + 4 * c1 + c2) / 6, (c2 - c0) / 2, (c0 - 2 * c1 + c2) / 2, (c3 - c0) / 6 + (c1 - c2) / 2]


def _log_density(shifted: Array, kappa: Array, scale: float, shape: float) -> Array:
    """Return the log density, up to a constant, of 2 M = log tan^2(theta/2) + log(1 + kappa/scale)."""
    with np.errstate(over="ignore", invalid="ignore"):
        log_tan_sq = shifted - np.log1p(kappa / scale)
        finite: Array = -2 * kappa * special.expit(log_tan_sq) + shape * (shifted - 2 * np.logaddexp(0, log_tan_sq))
        is_limit = np.isinf(kappa)
        if not is_limit.any():
            return finite
        return np.where(is_limit, -2 * scale * np.exp(shifted) + shape * shifted, finite)


def log_tan_sq_quantiles(t: Array, kappas: Array, scale: float, shape: float) -> Array:
    """Return quantiles of 2 M under the exact law at the probabilities Phi(t): (n_kappas, n_t)."""
    return _quantiles(t, kappas, lambda shifted, kappa: _log_density(shifted, kappa, scale, shape))


def _quantiles(t: Array, kappas: Array, log_density: LogDensity) -> Array:
    """Return quantiles at the probabilities Phi(t): (n_kappas, n_t).

    Gauss-Legendre panels give the CDF from the left and from the right (each accurate in its own tail); Newton's
    method on Phi^-1(F(2M)) = t, which is nearly linear, solves within the panel.
    """
    kappa = kappas[:, None]
    low, high, top = _support(kappa, log_density)
    blocks = [slice(start, start + _ROWS) for start in range(0, len(kappa), _ROWS)]
    return np.concatenate([_quantiles_on(t, kappa[at], low[at], high[at], top[at], log_density) for at in blocks])


def _quantiles_on(t: Array, kappa: Array, low: Array, high: Array, top: Array, log_density: LogDensity) -> Array:
    """Return quantiles of a few kappas, (n, 1), each with its support."""
    edges = low + (high - low) * np.linspace(0.0, 1.0, 401)
    half = (edges[:, 1:] - edges[:, :-1]) / 2
    points = edges[:, :-1, None] + half[..., None] * (1 + _NODES)
    mass = (np.exp(log_density(points, kappa[..., None]) - top[..., None]) * _GAUSS).sum(-1) * half
    total = mass.sum(-1, keepdims=True)
    zero = np.zeros_like(total)
    left = np.concatenate([zero, np.cumsum(mass, -1)], -1) / total
    right = np.concatenate([np.cumsum(mass[:, ::-1], -1)[:, ::-1], zero], -1) / total
    edge_t = _normal_quantile(left, right)
    panel = np.stack([np.clip(np.searchsorted(row, t) - 1, 0, len(row) - 2) for row in edge_t])
    start, end, left, right, t0, t1 = (
        np.take_along_axis(values, panel + step, -1)
        for values, step in ((edges, 0), (edges, 1), (left, 0), (right, 0), (edge_t, 0), (edge_t, 1))
    )
    with np.errstate(invalid="ignore"):
        guess = start + (end - start) * np.clip((t - t0) / (t1 - t0), 0, 1)
    x: Array = np.where(np.isfinite(guess), guess, (start + end) / 2)
    columns = [start, end, left, right, *(np.broadcast_to(column, x.shape) for column in (t, kappa, top, total))]
    return _solved(x.ravel(), [column.ravel() for column in columns], log_density).reshape(x.shape)


def _solved(x: Array, columns: list[Array], log_density: LogDensity) -> Array:
    """Return the result of Newton's method from x; a point has converged once a step leaves it unchanged."""
    result, moving = x.copy(), np.arange(len(x))
    for _ in range(6):  # quadratic convergence; four suffice for 1e-13
        start, end, left, right, t, kappa, top, total = columns
        part = (x - start) / 2
        inside = np.exp(log_density(start[:, None] + part[:, None] * (1 + _NODES), kappa[:, None]) - top[:, None])
        below = (inside * _GAUSS).sum(-1) * part / total
        reached = _normal_quantile(left + below, right - below)
        log_ratio = -(reached**2) / 2 - 0.5 * math.log(2 * math.pi) - (log_density(x, kappa) - top)
        after = np.clip(x - (reached - t) * np.exp(log_ratio) * total, start, end)
        has_moved = after != x
        moving, x, columns = moving[has_moved], after[has_moved], [column[has_moved] for column in columns]
        result[moving] = x
    return result


def _support(kappa: Array, log_density: LogDensity) -> tuple[Array, Array, Array]:
    """Return the interval with log density within 48 of the maximum (mass outside below 1e-18), and the maximum."""

    def bisect(inner: Array, outer: Array, threshold: Array) -> Array:
        for _ in range(80):
            middle = (inner + outer) / 2
            is_inside = log_density(middle, kappa) > threshold
            inner, outer = np.where(is_inside, middle, inner), np.where(is_inside, outer, middle)
        return outer

    a, b = np.full_like(kappa, -400.0), np.full_like(kappa, 400.0)
    for _ in range(150):  # the density has one maximum
        third = (b - a) / 3
        rises = log_density(a + third, kappa) < log_density(b - third, kappa)
        a, b = np.where(rises, a + third, a), np.where(rises, b, b - third)
    mode = (a + b) / 2
    top = log_density(mode, kappa)
    far = np.full_like(kappa, 400.0)
    return bisect(mode, -far, top - 48), bisect(mode, far, top - 48), top


def _normal_quantile(left: Array, right: Array) -> Array:
    is_left = left < right
    t: Array = special.ndtri(np.where(is_left, left, right))
    return np.where(is_left, t, -t)
