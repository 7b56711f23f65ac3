"""Expected similarities of posteriors that are nearly a point mass: log E e^{kappa_pos z.z'} as kappa' -> inf.

The closed form log C(kappa') - log C(R), R = |kappa' mu' + kappa_pos z|, is a difference of two numbers as large as
kappa', and keeps no digit of the result at kappa' = 1e16. With A = -(log C)', the same difference is the integral of A
from kappa' to R, whose length

    R - kappa' = kappa_pos (2 c + q) / (1 + s),   q = kappa_pos / kappa',   s = R / kappa' = sqrt(1 + q (2 c + q)),

has no cancellation, c = z.mu'. By the midpoint rule it is (R - kappa') A(m), m = (kappa' + R) / 2, off by
(R - kappa')^3 A''(m) / 24, and A(m) = 1 - (D-1) / (2 m) + (D-1)(D-3) / (8 m^2) + O(D^2 / m^3). Everything is written in
1 / kappa', so that kappa' = inf is no special case: it gives kappa_pos c, with gradient 0 in kappa'.
"""

from torch import Tensor

# Above this, the closed form's rounding error in float64 (2e-10) approaches the resolution of float32, and the
# expansion is accurate to 4e-12 up to D = 512. Training stops here: this is the default of `training.kappa_limit`.
NEARLY_A_POINT = 1e6
TIMES_KAPPA_POS = 1e3  # where kappa' is this much larger, the midpoint rule is off by at most 2e-12 of kappa_pos


def is_nearly_a_point(kappa: Tensor, kappa_pos: Tensor | float) -> Tensor:
    """Return where `point_similarity` must replace the closed form."""
    return (kappa > NEARLY_A_POINT) & (kappa > TIMES_KAPPA_POS * kappa_pos)


def point_similarity(kappa: Tensor, cosine: Tensor, kappa_pos: Tensor | float, dim: int) -> Tensor:
    """Return log E e^{kappa_pos z.z'} over z' ~ vMF(mu', kappa') where `is_nearly_a_point` holds, in any precision.

    kappa' broadcasts to the shape of the cosines c = z.mu'. Limits: kappa' = inf gives kappa_pos z.mu'.
    """
    inverse = 1 / kappa
    q = kappa_pos * inverse
    reach = 2 * cosine + q
    one_and_s = 1 + (1 + q * reach).sqrt()
    half_inverse = inverse / one_and_s  # 1 / (2 m)
    ratio = 1 - (dim - 1) * half_inverse * (1 - 0.5 * (dim - 3) * half_inverse)
    return kappa_pos * reach / one_and_s * ratio
