"""Independent ways to the same numbers: slow, simple, built on SciPy."""

from functools import cache, cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import integrate, interpolate
from torch import Tensor

Array = NDArray[np.float64]


def unit_vectors(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=dtype), dim=-1)


_gauss_legendre = cache(np.polynomial.legendre.leggauss)


class CosineLaw:
    """The law of the angle theta between z and mu under vMF, and of mu.z = cos(theta), by Simpson's rule."""

    def __init__(self, kappa: float, dim: int) -> None:
        self.kappa, self.dim = kappa, dim
        # The mass lies within a few 1/sqrt(kappa) of the pole (or of where sin^(D-2) peaks): refine there.
        width = min(np.pi, 12 * np.sqrt((dim + 1) / max(kappa, 1e-9)))
        self.theta = np.linspace(0.0, width, 40_001)
        self._top, self._mass = self._log_weight(self.theta).max(), 1.0
        mass = integrate.cumulative_simpson(self.density(self.theta), x=self.theta, initial=0.0)
        self._mass = mass[-1]
        self._cdf = interpolate.CubicHermiteSpline(self.theta, mass / mass[-1], self.density(self.theta))

    def _log_weight(self, theta: Array) -> Array:
        log_weight = -2 * self.kappa * np.sin(theta / 2) ** 2
        if self.dim > 2:
            with np.errstate(divide="ignore"):
                log_weight += (self.dim - 2) * np.log(np.sin(theta))
        return log_weight

    def density(self, theta: Array) -> Array:
        """Of the angle."""
        return np.exp(self._log_weight(theta) - self._top) / self._mass

    def angle_cdf(self, theta: Array) -> Array:
        """P(angle <= theta)."""
        cdf: Array = self._cdf(np.minimum(theta, self.theta[-1]))
        return cdf

    def cosine_cdf(self, cosine: Array) -> Array:
        """P(mu.z <= cosine)."""
        return 1 - self.angle_cdf(np.arccos(np.clip(cosine, -1, 1)))

    @cached_property
    def mean_cosine(self) -> float:
        """E[mu.z]."""
        return float(integrate.simpson(np.cos(self.theta) * self.density(self.theta), x=self.theta))

    def cosine_slope(self, theta: float) -> float:
        """d cos(theta) / d kappa at fixed P(angle <= theta), by the implicit function theorem."""
        nodes, weights = _gauss_legendre(500)
        angles = theta / 2 * (1 + nodes)
        change = theta / 2 * np.sum(weights * (np.cos(angles) - self.mean_cosine) * self.density(angles))
        return float(change / self.density(np.array(theta)) * np.sin(theta))
