"""Device functions of the kernels: random numbers and the polynomial transport of `pcl.kernels.transport`.

Axes: K samples (S elsewhere), N negatives, D dim; a program's blocks are BK, BN and BD of them.
"""

import triton
import triton.language as tl

from pcl.kernels.inputs import ROUNDS
from pcl.kernels.transport import DEGREE

PHILOX_ROUNDS = tl.constexpr(ROUNDS)
POLYNOMIAL_DEGREE = tl.constexpr(DEGREE)

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def words(seed, step, stream: tl.constexpr, c0, c1):
    """Return four words of random bits for every entry of c0, as a function of seed, step, stream and c1."""
    zero = (c0 * 0).to(tl.uint32)
    low = c0.to(tl.uint32)
    return tl.philox(seed, low, zero + c1.to(tl.uint32), zero + stream, zero + step.to(tl.uint32), PHILOX_ROUNDS)


@triton.jit
def normals(radius_word, angle_word):
    """Return two standard normals from two words, by Box and Muller, of 24 bits each: none is beyond 5.9."""
    u = (radius_word >> 8).to(tl.float32) * (1 / 16777216) + (1 / 33554432)
    cosine, sine = _of_turns((angle_word >> 8).to(tl.float32) * (1 / 16777216))
    radius = tl.sqrt(-2.0 * tl.log(u))
    return radius * cosine, radius * sine


@triton.jit
def _of_turns(v):
    """Return cosine and sine of 2 pi v, 0 <= v < 1, to 1e-7: cheaper than the library's, which take angles of any size.

    Taylor polynomials are used within an eighth of a turn around a multiple of a quarter; the quarter then decides
    which one is the cosine, and the signs.
    """
    quarter = (v * 4.0 + 0.5).to(tl.int32)
    g = v - quarter * 0.25
    g2 = g * g
    sine = g * (6.2831853 + g2 * (-41.341702 + g2 * (81.605249 + g2 * (-76.705860 + g2 * 42.058694))))
    cosine = 1.0 + g2 * (-19.739209 + g2 * (64.939394 + g2 * (-85.456817 + g2 * (60.244641 - g2 * 26.426257))))
    is_odd = (quarter & 1) == 1
    c = tl.where(is_odd, -sine, cosine)
    s = tl.where(is_odd, cosine, sine)
    is_turned = (quarter & 2) == 2
    return tl.where(is_turned, -c, c), tl.where(is_turned, -s, s)


@triton.jit
def polynomial(pointer, stride, t):
    """Evaluate a polynomial by Horner's rule; the coefficients are at pointer + p stride."""
    value = t * 0.0
    for p in tl.static_range(POLYNOMIAL_DEGREE + 1):
        value = value * t + tl.load(pointer + (POLYNOMIAL_DEGREE - p) * stride)
    return value


@triton.jit
def odd_polynomial(pointer, t):
    """Evaluate a polynomial whose even coefficients are zero; all coefficients are side by side."""
    t2 = t * t
    value = t * 0.0
    for p in tl.static_range(POLYNOMIAL_DEGREE, 0, -2):
        value = value * t2 + tl.load(pointer + p)
    return value * t


@triton.jit
def polynomial_at(pointers, stride, t, mask):
    """Evaluate a polynomial of its own for each entry of t."""
    value = t * 0.0
    for p in tl.static_range(POLYNOMIAL_DEGREE + 1):
        value = value * t + tl.load(pointers + (POLYNOMIAL_DEGREE - p) * stride, mask=mask, other=0.0)
    return value


@triton.jit
def polar(log_tan):
    """Return cosine and sine of the angle from the logarithm of the tangent of its half."""
    tangent = tl.exp(log_tan)
    sine = 2.0 * tangent / (1.0 + tangent * tangent)
    return 1.0 - tangent * sine, sine


@triton.jit
def sampled_cosine(c, log_tan, tangent_log_tan):
    """Return z.z' and its derivatives in c = z.mu' and in log tan(theta/2)."""
    w, s = polar(log_tan)
    u, _ = polar(tangent_log_tan)
    across_sq = 1.0 - c * c
    across = tl.sqrt(tl.maximum(across_sq, 1.1920929e-07))
    value = c * w + across * s * u
    slope_c = w - tl.where(across_sq > 1.1920929e-07, c / across, 0.0) * s * u
    return value, slope_c, s * (across * w * u - c * s)
