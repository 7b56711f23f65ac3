"""What the kernels share: random numbers and the polynomial transport of `pcl.kernels.transport`, inside a kernel.

Axes: K samples (S elsewhere), N negatives, D dim; a program's blocks are BK, BN and BD of them.
"""

import triton
import triton.language as tl

from pcl.kernels.philox import ROUNDS
from pcl.kernels.transport import DEGREE

PHILOX_ROUNDS = tl.constexpr(ROUNDS)
POLYNOMIAL_DEGREE = tl.constexpr(DEGREE)

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def words(seed, step, stream: tl.constexpr, c0, c1):
    """Four words of random bits for every entry of c0, of a seed, step, stream and c1."""
    zero = (c0 * 0).to(tl.uint32)
    low = c0.to(tl.uint32)
    return tl.philox(seed, low, zero + c1.to(tl.uint32), zero + stream, zero + step.to(tl.uint32), PHILOX_ROUNDS)


@triton.jit
def normals(radius_word, angle_word):
    """Two standard normals from two words: see `pcl.kernels.philox.normals`."""
    u = (radius_word >> 8).to(tl.float32) * (1 / 16777216) + (1 / 33554432)
    angle = (angle_word >> 8).to(tl.float32) * (6.283185307179586 / 16777216)
    radius = tl.sqrt(-2.0 * tl.log(u))
    return radius * tl.cos(angle), radius * tl.sin(angle)


@triton.jit
def polynomial(pointer, stride, t):
    """Horner's rule with the coefficients at pointer + p stride."""
    value = t * 0.0
    for p in tl.static_range(POLYNOMIAL_DEGREE + 1):
        value = value * t + tl.load(pointer + (POLYNOMIAL_DEGREE - p) * stride)
    return value


@triton.jit
def polynomial_at(pointers, stride, t, mask):
    """The same with a polynomial for each entry of t."""
    value = t * 0.0
    for p in tl.static_range(POLYNOMIAL_DEGREE + 1):
        value = value * t + tl.load(pointers + (POLYNOMIAL_DEGREE - p) * stride, mask=mask, other=0.0)
    return value


@triton.jit
def polynomial_of_columns(pointers, stride, t, mask):
    """The same with a polynomial for each column of t: (BK, BN), pointers (BN,)."""
    value = t * 0.0
    for p in tl.static_range(POLYNOMIAL_DEGREE + 1):
        coefficient = tl.load(pointers + (POLYNOMIAL_DEGREE - p) * stride, mask=mask, other=0.0)
        value = value * t + coefficient[None, :]
    return value


@triton.jit
def polar(log_tan):
    """Cosine and sine of the angle whose half has this logarithm of its tangent."""
    tangent = tl.exp(log_tan)
    sine = 2.0 * tangent / (1.0 + tangent * tangent)
    return 1.0 - tangent * sine, sine
