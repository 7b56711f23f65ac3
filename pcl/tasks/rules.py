"""Rules for positives and negatives of the controlled experiment, as in text, released code and theorem."""

from collections.abc import Callable
from enum import Enum

import torch
from torch import Tensor

from pcl.mathematics.normalizer_table import growth_table
from pcl.mathematics.point_limit import is_concentrated, point_similarity
from pcl.mathematics.special import log_vmf_normalizer


class PositiveRule(Enum):
    """The rule by which positives are drawn."""

    # Candidates (x', z') accepted with probability e^s / (e^s + C(0)/C(kappa_pos)), s = kappa_pos z.z': the paper's
    # appendix and the released code. Not the positives of the theorem: acceptance saturates near z.
    LOGISTIC = "logistic"
    # x' with z' ~ vMF(z, kappa_pos): the theorem's. z' is integrated out in closed form for vMF posteriors.
    VMF = "vmf"


class AcceptanceConstant(Enum):
    """The form of log C(0)/C(kappa_pos) in the logistic rule."""

    EXACT = "exact"
    FITTED = "fitted"  # the released regression: 9.50 not 11.15 at D = 10, kappa_pos = 20; more pairs pass as positive


class NegativeRule(Enum):
    """The negatives that an anchor may have."""

    UNIFORM = "uniform"  # any, as the paper writes it
    REJECT_POSITIVES = "reject_positives"  # released code: those that the logistic rule calls positive are redrawn


# log C(0)/C(kappa) = a + b kappa + c kappa^1.55 in the released code, for these dimensions; it is exact elsewhere.
_FIT = {
    2: (-2.439, 0.9904, 2.185e-4), 4: (-4.817, 0.9713, 6.479e-4), 8: (-7.908, 0.9344, 1.477e-3),
    10: (-9.024, 0.9165, 1.877e-3), 12: (-9.958, 0.8990, 2.267e-3), 16: (-11.43, 0.8649, 3.020e-3),
    32: (-14.38, 0.7416, 5.686e-3), 40: (-14.92, 0.6868, 6.837e-3), 48: (-15.13, 0.6360, 7.882e-3),
    56: (-15.12, 0.5889, 8.833e-3), 64: (-14.94, 0.5450, 9.698e-3), 96: (-13.42, 0.3973, 1.246e-2),
    128: (-11.44, 0.2839, 1.425e-2), 256: (-4.7340339, 0.0289469, 0.0173026), 512: (0.8674, -0.1124, 0.01589),
}  # fmt: skip


_SMALLEST_POOL, _LARGEST_POOL = 512, 4096
_LARGEST_TRIES, _FAILURE = 32, 1e-4
_ROWS_AT_ONCE = 16
# kappa(x) may leave the range that it has over the probes; the acceptance of exact positives is bounded up to here.
_KAPPA_MARGIN = 1.1


class IntegratedAcceptance:
    """Acceptance of x' given z: E e^{kappa_pos z.z'} over z' ~ vMF(mu', kappa') relative to its largest value.

    The expectation is C(kappa') / C(|kappa' mu' + kappa_pos z|); `kappa_max` is about the largest kappa'.
    """

    def __init__(self, dim: int, kappa_max: float, kappa_pos: float) -> None:
        self.dim, self.kappa_pos = dim, kappa_pos
        largest = torch.tensor(_KAPPA_MARGIN * kappa_max)
        if is_concentrated(largest, kappa_pos):
            self._largest_log_weight = float(point_similarity(largest, torch.ones(()), kappa_pos, dim))
        else:
            edges = growth_table(dim, torch.device("cpu"))(torch.stack([largest, largest + kappa_pos]))
            self._largest_log_weight = float(edges[1] - edges[0])

    def __call__(self, cosine: Tensor, kappa: Tensor) -> Tensor:
        """Return the acceptance, (R, B, P), for cosines z.mu', (R, B, P), and kappa', (R, 1, P)."""
        kappa_pos = self.kappa_pos
        resultant = (kappa.square() + kappa_pos**2 + 2 * kappa_pos * kappa * cosine).clamp(min=0).sqrt()
        growth = growth_table(self.dim, cosine.device)
        log_weight = growth(resultant) - growth(kappa)
        is_point = is_concentrated(kappa, kappa_pos)
        if is_point.device.type != "cpu" or is_point.any():  # on a GPU, `any` would wait for the device
            limit = point_similarity(kappa, cosine, kappa_pos, self.dim)
            log_weight = torch.where(is_point, limit, log_weight)
        return (log_weight - self._largest_log_weight).clamp(min=-60, max=0).exp()


def log_uniform_to_vmf(kappa: float, dim: int, constant: AcceptanceConstant) -> float:
    """Return log C(0)/C(kappa)."""
    if constant is AcceptanceConstant.FITTED and dim in _FIT:
        a, b, c = _FIT[dim]
        return float(a + b * kappa + c * kappa**1.55)
    log_c = log_vmf_normalizer(torch.tensor([0.0, kappa], dtype=torch.float64), dim)
    return (log_c[0] - log_c[1]).item()


def pool_sizes(rate: Tensor, called_positive: Tensor) -> tuple[int, int, float]:
    """Return pool size, tries for a negative, and how often the worst run's pool has no acceptable candidate.

    `rate` is the share of candidates that each anchor accepts, `called_positive` the share that the logistic rule calls
    positive, both (R, B).
    """
    pool = _SMALLEST_POOL
    while (failure := torch.exp(-pool * rate).mean(-1).amax().item()) > _FAILURE and pool < _LARGEST_POOL:
        pool *= 2
    tries = 1
    while called_positive.pow(tries).mean(-1).amax().item() > _FAILURE and tries < _LARGEST_TRIES:
        tries += 1
    return pool, tries, failure


def means_in_parts(function: Callable[[Tensor], Tensor], cosine: Tensor) -> Tensor:
    """Return means over the last axis, in float64, a few rows at a time: these fit into a processor's cache."""
    return torch.cat([function(rows).mean(-1) for rows in cosine.split(_ROWS_AT_ONCE, dim=1)], dim=1).double()
