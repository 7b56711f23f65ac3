"""Expected similarities of concentrated posteriors: log E e^{kappa_pos z.z'} as kappa' -> inf.

The closed form log C(kappa') - log C(R), R = |kappa' mu' + kappa_pos z|, is a difference of two numbers as large as
kappa', and keeps no digit of the result at kappa' = 1e16. With A = -(log C)', the same difference is the integral of A
from kappa' to R. A(k) = 1 - (D-1) / (2 k) + (D-1)(D-3) / (8 k^2) + O(D^2 / k^3 + D^4 / k^4) can be integrated term by
term, and none of the terms has a cancellation: with c = z.mu' and q = kappa_pos / kappa',

    R - kappa'      = kappa_pos (2 c + q) / (1 + s),   s = R / kappa' = sqrt(1 + q (2 c + q)),
    log R / kappa'  = log1p(q (2 c + q)) / 2,
    1/kappa' - 1/R  = q (2 c + q) / (kappa' s (1 + s)).

Everything is written in 1 / kappa', so kappa' = inf is not a special case: it gives kappa_pos c, with gradient 0 in
kappa'.
"""

import torch
from torch import Tensor

# Above this, the closed form's rounding error in float64 (2e-10) approaches the resolution of float32, and the
# expansion is accurate to 4e-12 up to D = 512. `paper` and `exact` end a run here: see `training.kappa_limit`.
NEARLY_A_POINT = 1e6
TIMES_KAPPA_POS = 1e3  # a point is also this much more concentrated than positive pairs are
# From here on, the expansion replaces tables of log C: it is accurate to 1e-6 of kappa_pos at D = 64, 5e-4 at D = 512.
CONCENTRATED = 1000.0
CONCENTRATED_TIMES = 2.0  # kappa_pos: R, at least half of kappa', is then large too


def is_nearly_a_point(kappa: Tensor, kappa_pos: Tensor | float) -> Tensor:
    """Return where `point_similarity` must replace the closed form in float64."""
    return (kappa > NEARLY_A_POINT) & (kappa > TIMES_KAPPA_POS * kappa_pos)


def is_concentrated(kappa: Tensor, kappa_pos: Tensor | float) -> Tensor:
    """Return where `point_similarity` must replace differences of a table of log C."""
    return (kappa > CONCENTRATED) & (kappa > CONCENTRATED_TIMES * kappa_pos)


def point_similarity(kappa: Tensor, cosine: Tensor, kappa_pos: Tensor | float, dim: int) -> Tensor:
    """Return log E e^{kappa_pos z.z'} over z' ~ vMF(mu', kappa') where `is_concentrated` holds, in any precision.

    kappa' broadcasts to the shape of the cosines c = z.mu'. Limits: kappa' = inf gives kappa_pos z.mu'.
    """
    inverse = 1 / kappa
    q = kappa_pos * inverse
    reach = 2 * cosine + q
    growth = q * reach
    s = (1 + growth).sqrt()
    rise = kappa_pos * reach / (1 + s)
    drop = inverse * growth / (s * (1 + s))
    return rise - (dim - 1) / 4 * torch.log1p(growth) + (dim - 1) * (dim - 3) / 8 * drop
