"""Independent ways to the same numbers: slow, simple, built on SciPy."""

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import integrate
from torch import Tensor

Array = NDArray[np.float64]


def unit_vectors(*shape: int, generator: torch.Generator, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=dtype), dim=-1)


class CosineLaw:
    """CDF of mu.z under vMF on a fine grid of angles, by Simpson's rule."""

    def __init__(self, kappa: float, dim: int) -> None:
        # The mass lies within a few 1/sqrt(kappa) of the pole (or of where sin^(D-2) peaks): refine there.
        width = min(np.pi, 12 * np.sqrt((dim + 1) / max(kappa, 1e-9)))
        theta = np.linspace(0.0, width, 400_001)
        with np.errstate(divide="ignore"):
            log_density = -2 * kappa * np.sin(theta / 2) ** 2 + (dim - 2) * np.log(np.sin(theta))
        if dim == 2:
            log_density = -2 * kappa * np.sin(theta / 2) ** 2
        density = np.exp(log_density - log_density.max())
        mass = integrate.cumulative_simpson(density, x=theta, initial=0.0)
        self.theta, self.cdf_theta = theta, mass / mass[-1]
        self.density_theta = density / mass[-1]

    def cdf(self, cosine: Array) -> Array:
        """P(mu.z <= cosine)."""
        theta = np.arccos(np.clip(cosine, -1, 1))
        return 1 - np.interp(theta, self.theta, self.cdf_theta)

    def expectation(self, values: Array) -> float:
        """Mean of a function given by its values on the grid of angles."""
        return float(integrate.simpson(values * self.density_theta, x=self.theta))
