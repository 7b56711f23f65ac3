"""Bessel functions behind the von Mises-Fisher distribution: log C_D and A_D = I_{D/2} / I_{D/2-1}.

Everything is expressed through g_v(x) = Gamma(v+1) (2/x)^v I_v(x), which is 1 at x = 0 and has no singularity, and
through the ratio r_v(x) = I_{v+1}(x) / I_v(x) = d/dx log g_v(x).

Two exact relations are used:

- w = x I_v'(x) / I_v(x) satisfies x w' + w^2 = x^2 + v^2. With s = sqrt(x^2 + v^2) and t = v/s it has the expansion
  w = s + (1 - t^2) sum_k b_k(t) / v^(k-1), uniform in x, whose polynomials b_k follow from that equation by a
  recurrence over rationals. It gives r_v = x/(s+v) + (x/s^2) Q(t) and log g_v in terms of one polynomial each, without
  cancellation for small or large x.
- The expansion is accurate to 1e-13 from order 16 on. Smaller orders come from the recurrence r_{v-1} = x / (2v + x
  r_v), which is stable downwards. The derivatives of r follow from the differentiated recurrence, so they subtract no
  nearly equal numbers either (the textbook A' = 1 - A^2 - (D-1) A / x loses every digit at x = 1e8).

Values are computed in float64, on any device that has it, and returned in the dtype of the argument. Gradients are
analytic: r' and r'' come from the same recurrences, so that log C_D can be differentiated three times, A_D twice.
"""

import math
from enum import Enum, auto
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx

from pcl.mathematics.bessel_series import MIN_ORDER, expansion_series

# Beyond this bound the limits for large x hold to the last bit. It keeps (1 + x/2)^8 inside float64: one logarithm is
# taken of the product of this many factors of the recurrence.
_MAX_ARGUMENT = 1e38
_FACTORS_PER_LOG = 8


def log_vmf_normalizer(kappa: Tensor, dim: int) -> Tensor:
    """Return the logarithm of C_D(kappa) = kappa^(D/2-1) / ((2 pi)^(D/2) I_{D/2-1}(kappa)), for D >= 2 and kappa >= 0.

    Limits: kappa = 0 gives the uniform density, -log of the sphere's area; kappa = inf gives -inf.
    """
    return (log_uniform_density(dim) - _apply(kappa, _order(dim), _Quantity.LOG_G)).to(_result_dtype(kappa))


def log_vmf_peak(kappa: Tensor, dim: int) -> Tensor:
    """Return the log density at the mode, log C_D(kappa) + kappa, without the cancellation of that sum.

    The log density elsewhere is this minus kappa (1 - mu.z), which keeps its digits where kappa and kappa mu.z are both
    huge.
    """
    log_g_minus_kappa = _apply(kappa, _order(dim), _Quantity.LOG_G_MINUS_X)
    return (log_uniform_density(dim) - log_g_minus_kappa).to(_result_dtype(kappa))


def bessel_ratio(kappa: Tensor, dim: int) -> Tensor:
    """Return A_D(kappa) = I_{D/2}(kappa) / I_{D/2-1}(kappa), the mean of mu.z under vMF(mu, kappa).

    Limits: kappa -> 0 gives kappa / D; kappa = inf gives 1.
    """
    return _apply(kappa, _order(dim), _Quantity.RATIO).to(_result_dtype(kappa))


def bessel_ratio_complement(kappa: Tensor, dim: int) -> Tensor:
    """Return 1 - A_D(kappa) to full relative precision, even where A_D rounds to 1."""
    return _apply(kappa, _order(dim), _Quantity.COMPLEMENT).to(_result_dtype(kappa))


def bessel_ratio_slope(kappa: Tensor, dim: int) -> Tensor:
    """Return A_D'(kappa), the variance of mu.z under vMF(mu, kappa).

    Limits: kappa -> 0 gives 1 / D; kappa = inf gives 0.
    """
    return _apply(kappa, _order(dim), _Quantity.SLOPE).to(_result_dtype(kappa))


def log_uniform_density(dim: int) -> float:
    """Return the uniform log density on the sphere S^{D-1}, log C_D(0) = log Gamma(D/2) - log 2 - D/2 log pi."""
    _order(dim)
    return math.lgamma(dim / 2) - math.log(2.0) - dim / 2 * math.log(math.pi)


def _result_dtype(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def _order(dim: int) -> float:
    if dim < 2:
        raise ValueError(f"`dim >= 2` must hold, but got {dim}.")
    return dim / 2 - 1


class _Quantity(Enum):
    LOG_G = auto()  # log g_v
    LOG_G_MINUS_X = auto()  # log g_v - x
    RATIO = auto()  # r_v
    COMPLEMENT = auto()  # 1 - r_v
    SLOPE = auto()  # r_v'
    CURVATURE = auto()  # r_v''


# quantity -> (sign, quantity) of its derivative
_DERIVATIVE = {
    _Quantity.LOG_G: (1.0, _Quantity.RATIO),
    _Quantity.LOG_G_MINUS_X: (-1.0, _Quantity.COMPLEMENT),
    _Quantity.RATIO: (1.0, _Quantity.SLOPE),
    _Quantity.COMPLEMENT: (-1.0, _Quantity.SLOPE),
    _Quantity.SLOPE: (1.0, _Quantity.CURVATURE),
}


class _Bessel(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, v: float, quantity: _Quantity) -> Tensor:
        return _evaluate(x, v, quantity)

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        x, v, quantity = inputs
        ctx.save_for_backward(x)
        ctx.v, ctx.quantity = v, quantity  # type: ignore[attr-defined]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        if ctx.quantity not in _DERIVATIVE:
            raise NotImplementedError("A_D is differentiable twice and log C_D three times, not more.")
        sign, quantity = _DERIVATIVE[ctx.quantity]
        (x,) = ctx.saved_tensors
        return sign * grad * _apply(x, ctx.v, quantity), None, None


def _apply(x: Tensor, v: float, quantity: _Quantity) -> Tensor:
    out: Tensor = _Bessel.apply(x.to(torch.float64), v, quantity)  # type: ignore[no-untyped-call]
    return out


def _evaluate(x: Tensor, v: float, quantity: _Quantity) -> Tensor:
    """Return a quantity at order v, from the expansion at an order of at least 16 and the recurrence down from it."""
    log = quantity in (_Quantity.LOG_G, _Quantity.LOG_G_MINUS_X)
    unbounded, x = x, x.clamp(max=_MAX_ARGUMENT)
    steps = max(0, math.ceil(MIN_ORDER - v))
    top = _Expansion(x, v + steps)
    ratio = top.ratio()
    if log:
        log_g = top.log_g(minus_x=quantity is _Quantity.LOG_G_MINUS_X)
    complement = top.complement() if quantity is _Quantity.COMPLEMENT else None
    slope = top.slope() if quantity in (_Quantity.SLOPE, _Quantity.CURVATURE) else None
    curvature = top.curvature() if quantity is _Quantity.CURVATURE else None
    growth = torch.zeros_like(x)  # (product of g_{order-1} / g_order) - 1, kept as a difference for small x
    for step in range(steps):
        twice = 2 * (v + steps - step)
        xr = x * ratio
        below = twice + xr
        if log:
            factor = xr / twice
            growth = growth + factor + growth * factor
            if step % _FACTORS_PER_LOG == _FACTORS_PER_LOG - 1 or step == steps - 1:
                log_g = log_g + torch.log1p(growth)
                growth = torch.zeros_like(x)
        if complement is not None:
            complement = (twice - x * complement) / below
        if slope is not None:
            above = twice - x * x * slope
            if curvature is not None:
                above_slope = -x * (2 * slope + x * curvature)
                curvature = (above_slope - 2 * above * (ratio + x * slope) / below) / (below * below)
            slope = above / (below * below)
        ratio = x / below
    # Beyond the bound, 1 - r falls like 1/x, which extends every quantity to x = inf.
    shrink = torch.where(unbounded > _MAX_ARGUMENT, _MAX_ARGUMENT / unbounded, 1.0)
    if quantity is _Quantity.LOG_G:
        return log_g + (unbounded - x)
    if quantity is _Quantity.LOG_G_MINUS_X:
        return log_g + (v + 0.5) * torch.log(shrink)
    for power, result in ((3, curvature), (2, slope), (1, complement)):
        if result is not None:
            return result * shrink**power
    return ratio


class _Expansion:
    """The uniform expansion at one order v >= 16; s = sqrt(x^2 + v^2), t = v/s, h = x/s."""

    def __init__(self, x: Tensor, v: float) -> None:
        self.x, self.v = x, v
        self.s = torch.sqrt(x * x + v * v)
        self.t, self.h = v / self.s, x / self.s
        self.ratio_series, self.log_series = expansion_series(v)

    def log_g(self, *, minus_x: bool) -> Tensor:
        x, v, s = self.x, self.v, self.s
        rise = x * x / (s + v)  # s - v
        leading = v * v / (s + x) - v if minus_x else rise
        return (
            leading
            - v * torch.log1p(rise / (2 * v))
            - 0.5 * torch.log1p(rise / v)
            + _polynomial(self.log_series, self.t)
        )

    def ratio(self) -> Tensor:
        return self.x / (self.s + self.v) + self.h / self.s * self._q()

    def complement(self) -> Tensor:
        x, v, s = self.x, self.v, self.s
        return (v + v * v / (s + x)) / (s + v) - self.h / s * self._q()

    def slope(self) -> Tensor:
        v, s, t, h = self.v, self.s, self.t, self.h
        g, g1 = h / s, (t * t - h * h) / (s * s)
        return v / (s * (s + v)) + g1 * self._q() - g * g * t * self._q(1)

    def curvature(self) -> Tensor:
        v, s, t, h = self.v, self.s, self.t, self.h
        g, g1, g2 = h / s, (t * t - h * h) / (s * s), 2 * h * (h * h - 3 * t * t) / (s * s * s)
        t1, t2 = -t * g, t * (g * g - g1)
        q, q1, q2 = self._q(), self._q(1), self._q(2)
        leading = -v * h * (2 * s + v) / (s * (s + v)) ** 2
        return leading + g2 * q + 2 * g1 * q1 * t1 + g * (q2 * t1 * t1 + q1 * t2)

    def _q(self, derivative: int = 0) -> Tensor:
        coefficients = list(self.ratio_series)
        for _ in range(derivative):
            coefficients = [i * c for i, c in enumerate(coefficients)][1:]
        return _polynomial(coefficients, self.t)


def _polynomial(coefficients: list[float] | tuple[float, ...], t: Tensor) -> Tensor:
    value = torch.full_like(t, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = value * t + coefficient
    return value
