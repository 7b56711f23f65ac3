"""Samples of anchors' posteriors for the fused losses.

Axes: K samples, A anchors, D dim.
"""

import triton
import triton.language as tl
from torch import Tensor

from pcl.kernels.device_math import normals, polar, polynomial, words
from pcl.kernels.inputs import STREAM_SAMPLE, STREAM_TANGENT
from pcl.kernels.transport import N_COEFFICIENTS

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

SAMPLES_PER_THREAD = 4  # they share the coefficients that a thread loads
_TANGENT = tl.constexpr(STREAM_TANGENT)
_SAMPLE = tl.constexpr(STREAM_SAMPLE)
_N_COEFFICIENTS = tl.constexpr(N_COEFFICIENTS)


@triton.jit
def _samples_kernel(
    mu_ptr, curve_ptr, seed_ptr, z_ptr, slope_ptr, c_a_ptr, n_curves,
    K: tl.constexpr, D: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Draw samples z = w mu + s v, v the normalised part of the noise orthogonal to mu; the noise is drawn twice."""
    a = tl.program_id(0).to(tl.int64)  # offsets may exceed 2^31
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    inside = k < K
    seed, step = tl.load(seed_ptr), tl.load(seed_ptr + 1)
    along = tl.zeros([BK], tl.float32)
    square = tl.zeros([BK], tl.float32)
    for group in range((D + 3) // 4):
        g0, g1, g2, g3 = words(seed, step, _TANGENT, group * K + k, a)
        for i in tl.static_range(4):
            g = _one_of_four(g0, g1, g2, g3, i)
            d = 4 * group + i
            is_used = d < D
            mu = tl.load(mu_ptr + a * D + d, mask=is_used, other=0.0)
            along += g * mu
            square += tl.where(is_used, g * g, 0.0)
    s0, s1, _, _ = words(seed, step, _SAMPLE, k, a)
    t, _ = normals(s0, s1)
    cosine, sine = polar(polynomial(curve_ptr + a, n_curves, t))
    # Where the noise is nearly parallel to mu, the difference is mostly rounding error. Without the floor, v would be
    # hundreds of units long, as for one in 1e11 samples at D = 4.
    across = sine / tl.sqrt(tl.maximum(square - along * along, 1e-5 * square + 1e-30))
    tl.store(c_a_ptr + a * K + k, cosine, mask=inside)
    slope = polynomial(curve_ptr + _N_COEFFICIENTS * n_curves + a, n_curves, t)
    tl.store(slope_ptr + a * K + k, slope, mask=inside)
    for group in range((D + 3) // 4):
        g0, g1, g2, g3 = words(seed, step, _TANGENT, group * K + k, a)
        for i in tl.static_range(4):
            g = _one_of_four(g0, g1, g2, g3, i)
            d = 4 * group + i
            mu = tl.load(mu_ptr + a * D + d, mask=d < D, other=0.0)
            z = cosine * mu + across * (g - along * mu)
            tl.store(z_ptr + (a * D + d) * K + k, z, mask=inside & (d < D))


@triton.jit
def _one_of_four(g0, g1, g2, g3, i: tl.constexpr):
    """Return the i-th normal of four words."""
    if i == 0:
        g, _ = normals(g0, g1)
    elif i == 1:
        _, g = normals(g0, g1)
    elif i == 2:
        g, _ = normals(g2, g3)
    else:
        _, g = normals(g2, g3)
    return g


def anchor_samples(mu: Tensor, curve: Tensor, n_samples: int, seed_and_step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Draw samples z, (A, D, K); return them with mu.z and the derivative of log tan(theta/2) in kappa, (A, K) each.

    Args:
        mu: Modes, (A, D), contiguous.
        curve: Result of `curves` for concentrations, the first A of which are the anchors'.
        n_samples: Number K of samples.
        seed_and_step: Two int64 numbers on the device, which determine the random numbers.
    """
    n_anchors, dim = mu.shape
    z = mu.new_empty(n_anchors, dim, n_samples)
    cosine, slope = mu.new_empty(2, n_anchors, n_samples)
    block = min(128, max(32, triton.next_power_of_2(n_samples)))
    _samples_kernel[(n_anchors, triton.cdiv(n_samples, block))](
        mu, curve, seed_and_step, z, slope, cosine, curve.shape[1], K=n_samples, D=dim, BK=block, num_warps=block // 32
    )
    return z, cosine, slope
