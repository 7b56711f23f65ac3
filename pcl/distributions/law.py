"""Laws of a sampled vMF cosine and gradients of its samples: exact, or as the released code computes them.

The released code samples by rejection: e ~ Beta((D-1)/2, (D-1)/2), w = (1 - (1+b) e) / (1 - (1-b) e), accepted with
probability min(1, t^(D-1) e^(d - t)), t = 2 a b / (1 - (1-b) e). With b = (c - 2 kappa) / (D-1),
c = sqrt(4 kappa^2 + (D-1)^2), a = (D-1 + 2 kappa + c) / 4 and d = 4 a b / (1+b) - (D-1) log(D-1) this is exact. For
kappa >= 11 it replaces b by the approximation (D-1) / (4 kappa), and keeps a and d.
"""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import special
from torch import Tensor

Array = NDArray[np.float64]

# Between these kappas the released code moves from the exact b to the approximation.
_BLEND_START, _BLEND_END = 10.0, 11.0


class Sampler(Enum):
    """The law of samples: exact, or that of the released code."""

    EXACT = "exact"
    # The released code's: a nominal kappa of 16 is 15.9 at D = 10, 12.1 at D = 32, 10 at D = 40, 0.5 at D = 64.
    RELEASED = "released"


class SamplerGradient(Enum):
    """The gradient of samples in kappa: exact, or that of the released code."""

    EXACT = "exact"
    # That of w(e, b(kappa)) at the accepted e, without the correction for acceptance: 0.98 of the exact at D = 10.
    UNCORRECTED = "uncorrected"


@dataclass(frozen=True)
class CosineLaw:
    """Law and gradient of a sampled cosine."""

    sampler: Sampler = Sampler.EXACT
    gradient: SamplerGradient = SamplerGradient.EXACT

    def uncorrected_slope(self, kappa: Tensor, dim: int) -> Tensor:
        """Return d/dkappa log tan(theta/2) at an accepted e: (log b)'/2, as tan^2(theta/2) = b e / (1-e)."""
        n = dim - 1
        root = torch.sqrt(4 * kappa * kappa + n * n)
        if self.sampler is Sampler.EXACT:
            return -1 / root
        used = kappa.clamp(min=_BLEND_START)  # the approximation is not used below
        exact, approximate = n / (2 * kappa + root), n / (4 * used)
        share = (kappa - _BLEND_START).clamp(0, _BLEND_END - _BLEND_START)
        is_blending = ((kappa > _BLEND_START) & (kappa < _BLEND_END)).to(kappa.dtype)
        b = torch.lerp(exact, approximate, share)
        slope = torch.lerp(-2 / root * exact, -approximate / used, share)
        return 0.5 * (slope + is_blending * (approximate - exact)) / b


EXACT_LAW = CosineLaw()


def released_log_density(log_tan_sq: Array, kappa: Array, dim: int) -> Array:
    """Return the log density, up to a constant, of log tan^2(theta/2) under the released sampler, for finite kappa."""
    n = dim - 1
    root = np.sqrt(4 * kappa**2 + n**2)
    exact = n / (2 * kappa + root)
    approximate = n / (4 * np.maximum(kappa, _BLEND_START))  # not used below
    share = np.clip(kappa - _BLEND_START, 0, _BLEND_END - _BLEND_START)
    b = share * approximate + (1 - share) * exact
    a = (n + 2 * kappa + root) / 4
    log_odds = log_tan_sq - np.log(b)  # log(e / (1-e))
    log_t = np.log(2 * a * b) - np.log1p((b - 1) * special.expit(log_odds))
    log_accept = n * log_t - np.exp(log_t) + 4 * a * b / (1 + b) - n * math.log(n)
    log_beta = n / 2 * (log_odds - 2 * np.logaddexp(0, log_odds))
    density: Array = log_beta + np.minimum(0, log_accept)
    return density
