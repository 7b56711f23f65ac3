"""The von Mises-Fisher distribution on the sphere S^{D-1}.

Axes: S samples, B batch, D dim.
"""

from typing import Any

import numpy as np
import torch
from torch import Size, Tensor

from pcl.distributions.checks import broadcast_shape
from pcl.distributions.cosine import CosineTable, Curve, coordinate_table, cosine_table, locate
from pcl.distributions.directional import Directional
from pcl.distributions.law import EXACT_LAW, CosineLaw
from pcl.mathematics.special import bessel_ratio, bessel_ratio_complement, bessel_ratio_slope, log_vmf_peak

_BLOCK = 2**19  # numbers in a block of samples: 2 MiB of float32, about a core's second-level cache
# NumPy asks Linux for huge pages, torch does not: a million samples at D = 10 take 70 ms instead of 81.
_NUMPY_DTYPE = {torch.float32: np.float32, torch.float64: np.float64}
# Up to this dimension a product with a D x D matrix costs less than the passes it replaces (1.5 times less at 256).
_LARGEST_MATRIX = 256


class VonMisesFisher(Directional):
    """vMF(mu, kappa) with density C_D(kappa) exp(kappa mu.z) on the unit sphere in D >= 2 dimensions.

    Args:
        mu: Modes of unit norm, (*batch, D).
        kappa: Concentrations >= 0, (*batch); broadcast against the batch of mu.
        validate_args: Check that every mu has unit norm and no kappa is NaN or negative. As everywhere in
            torch.distributions this is on by default, and on a GPU it waits for the device; sampling never does.
        law: Law of the samples; anything but the default reproduces a defect of the released code. Densities,
            moments and quantiles are always exact.

    Limits: kappa = 0 is the uniform distribution, kappa = inf the point mass at mu.

    Samples are exact and reparametrised: a normal variate is transported to the cosine mu.z by the inverse CDF
    (`pcl.distributions.cosine`), and a uniform tangent direction is carried to mu by a Householder reflection.
    There is no rejection, hence no loop whose length depends on data, and the gradient in kappa is that of implicit
    reparametrisation.

    Example:
        >>> mu = torch.nn.functional.normalize(torch.ones(3), dim=0)
        >>> VonMisesFisher(mu, 20.0).log_prob(mu)
        tensor(1.1579)
    """

    allows_zero_kappa = True

    def __init__(
        self, mu: Tensor, kappa: Tensor | float, validate_args: bool | None = None, law: CosineLaw = EXACT_LAW
    ) -> None:
        self.law = law
        super().__init__(mu, kappa, validate_args)

    def expand(self, batch_shape: Any, _instance: Any = None) -> "VonMisesFisher":
        expanded = super().expand(batch_shape)
        expanded.law = self.law
        return expanded

    @property
    def mean(self) -> Tensor:
        """Mean E[z] = A_D(kappa) mu."""
        return bessel_ratio(self.kappa, self.dim).unsqueeze(-1) * self.mu

    @property
    def variance(self) -> Tensor:
        """Variance of each coordinate: A' along mu, (1 - A^2 - A') / (D - 1) = A / kappa across it."""
        complement = bessel_ratio_complement(self.kappa, self.dim)
        along = bessel_ratio_slope(self.kappa, self.dim)
        across = (complement * (2 - complement) - along) / (self.dim - 1)
        mu_sq = self.mu.square()
        return along.unsqueeze(-1) * mu_sq + across.unsqueeze(-1) * (1 - mu_sq)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return log C_D(kappa) + kappa mu.z, normalised on the sphere's surface, at unit vectors (..., *batch, D).

        Limits: for kappa = inf, inf at the mode and -inf elsewhere.
        """
        if self._validate_args:
            self._validate_sample(value)
        # 1 - mu.z as half a squared distance: kappa times it keeps its digits where mu.z rounds to 1.
        distance = 0.5 * (value - self.mu).square().sum(-1)
        kappa = self._finite_kappa()
        log_prob = log_vmf_peak(kappa, self.dim) - kappa * distance
        return torch.where(self.kappa.isinf(), _point_mass(distance), log_prob)

    def entropy(self) -> Tensor:
        """Return the differential entropy -log C_D(kappa) - kappa A_D(kappa)."""
        kappa = self._finite_kappa()
        entropy = kappa * bessel_ratio_complement(kappa, self.dim) - log_vmf_peak(kappa, self.dim)
        return torch.where(self.kappa.isinf(), -torch.inf, entropy)

    def sample(self, sample_shape: Any = Size(), generator: torch.Generator | None = None) -> Tensor:  # noqa: B008
        """Draw samples without gradients, (*sample_shape, *batch, D)."""
        with torch.no_grad():
            if not self._can_use_matrix_products():
                return self.rsample(sample_shape, generator)
            shape = self._extended_shape(Size(sample_shape))
            samples = torch.from_numpy(np.empty(shape, dtype=_NUMPY_DTYPE[self.mu.dtype]))
            flat = samples.view(-1, self.dim)
            curve = Curve(self._sampling_table(), self.kappa, len(flat))
            for part in flat.split(_BLOCK // self.dim):
                noise = torch.randn(self.dim, len(part), dtype=part.dtype, generator=generator)
                cosine, sine = curve.polar(locate(noise[0]))
                _place_around_one_mode(noise, cosine, sine, self.mu, out=part)
            return samples

    def rsample(self, sample_shape: Any = Size(), generator: torch.Generator | None = None) -> Tensor:  # noqa: B008
        """Draw samples with pathwise gradients in mu and kappa, (*sample_shape, *batch, D)."""
        shape = self._extended_shape(Size(sample_shape))
        return self._rsample_by(torch.randn(shape, dtype=self.mu.dtype, device=self.mu.device, generator=generator))

    def _rsample_by(self, noise: Tensor) -> Tensor:
        """Map standard normals to samples: along the last axis the first sets the cosine, the others the tangent."""
        cosine, sine = self._sampling_table().polar(noise[..., 0].contiguous(), self.kappa)
        return _place(noise, cosine, sine, self.mu)

    def sample_mode_cosine(self, sample_shape: Any = Size(), generator: torch.Generator | None = None) -> Tensor:  # noqa: B008
        """Draw cosines z.mu of fresh samples, (*sample_shape, *batch), without gradients and without forming z."""
        shape = (*Size(sample_shape), *self.batch_shape)
        noise = torch.randn(shape, dtype=self.mu.dtype, device=self.mu.device, generator=generator)
        with torch.no_grad():
            return self._sampling_table().polar(noise, self.kappa)[0]

    def rsample_cosine(self, mode_cosine: Tensor, noise: Tensor) -> Tensor:
        """Draw inner products z.z' of given points z with fresh samples z', without forming z'.

        With c = z.mu, a sample z' enters only through its cosine w to mu and one coordinate u of its uniform tangent
        direction: z.z' = c w + sqrt(1 - c^2) sqrt(1 - w^2) u. Memory falls by a factor of D. Each value is exactly
        distributed given z, and values at different entries are independent given z. c is (S, *shape), to which the
        batch broadcasts, the standard normals are (2, S, *shape), and the result is (S, *shape), with gradients in c
        (hence in z and mu) and kappa.
        """
        cosine, sine = self._sampling_table().polar(noise[0], self.kappa)
        tangent = coordinate_table(self.dim - 1, noise.dtype, noise.device)(noise[1])
        # sqrt has an infinite slope at c = +-1, where rounding decides c; a floor of one rounding error bounds it.
        across = (1 - mode_cosine.square()).clamp(min=torch.finfo(noise.dtype).eps).sqrt()
        return mode_cosine * cosine + across * (sine * tangent)

    def cosine_quantile(self, p: Tensor | float) -> Tensor:
        """Return the p-quantile q of mu.z: P(mu.z <= q) = p, p in [0, 1] broadcast. Differentiable in kappa."""
        p = torch.as_tensor(p, dtype=self.mu.dtype, device=self.mu.device)
        if p.requires_grad:
            raise ValueError("Quantiles are differentiable in kappa only; pass `p.detach()`.")
        if self._validate_args and not ((p >= 0) & (p <= 1)).all():
            raise ValueError(f"`0 <= p <= 1` must hold, but got {p.tolist()}.")
        shape = broadcast_shape(p.shape, self.kappa.shape)
        # The cosine falls as the normal variate rises.
        table = cosine_table(self.dim, self.mu.dtype, self.mu.device)
        quantile = table.polar(-torch.special.ndtri(p).expand(shape), self.kappa.expand(shape))[0]
        at_pole = torch.where(p <= 0, -1.0, 1.0).to(quantile.dtype)
        return torch.where((p <= 0) | (p >= 1), at_pole, quantile)

    def credible_threshold(self, p: Tensor | float) -> Tensor:
        """Return the t for which the cap {z : mu.z >= t} holds probability p."""
        return self.cosine_quantile(1 - p)

    def log_expected_likelihood(self, other: "VonMisesFisher") -> Tensor:
        """Return the log of the integral of both densities' product: log C(k1) + log C(k2) - log C(|k1 mu1 + k2 mu2|).

        Batches broadcast. Limits: if either kappa is 0, the uniform log density.
        """
        if self.dim != other.dim:
            raise ValueError(f"Both distributions must have the same dimension, but got {self.dim} and {other.dim}.")
        # In float64, like log C itself: terms of the size of kappa cancel down to a few units.
        distance = 0.5 * (self.mu.double() - other.mu.double()).square().sum(-1)  # 1 - mu1.mu2
        k1, k2 = self._finite_kappa().double(), other._finite_kappa().double()
        crossed = 2 * k1 * k2 * distance
        resultant_sq = (k1 + k2).square() - crossed
        resultant = resultant_sq.clamp(min=torch.finfo(torch.float64).tiny).sqrt()  # finite slope at 0
        peak1, peak2, peak3 = _log_peaks((k1, k2, resultant), self.dim)
        log_likelihood = peak1 + peak2 - peak3 - crossed / (k1 + k2 + resultant)  # which is k1 + k2 - resultant
        # With a point mass, the integral is the other's density at that point.
        is_point, other_is_point = self.kappa.isinf(), other.kappa.isinf()
        log_likelihood = torch.where(is_point, peak2 - k2 * distance, log_likelihood)
        log_likelihood = torch.where(other_is_point, peak1 - k1 * distance, log_likelihood)
        log_likelihood = torch.where(is_point & other_is_point, _point_mass(distance), log_likelihood)
        return log_likelihood.to(self.mu.dtype)

    def expected_likelihood(self, other: "VonMisesFisher") -> Tensor:
        """Return the integral of both densities' product, in closed form; the batches broadcast."""
        return self.log_expected_likelihood(other).exp()

    def _can_use_matrix_products(self) -> bool:
        """Return True for one mode on a CPU where matrix products are exact: samples must have unit norm."""
        is_exact = self.mu.dtype == torch.float64 or (
            torch.get_float32_matmul_precision() == "highest" and not torch.is_autocast_enabled("cpu")
        )
        return self.mu.device.type == "cpu" and not self.batch_shape and self.dim <= _LARGEST_MATRIX and is_exact

    def _finite_kappa(self) -> Tensor:
        """Return kappa with 1 in place of inf: a branch that `where` does not take must not put NaN into gradients."""
        return torch.where(self.kappa.isinf(), 1.0, self.kappa)

    def _sampling_table(self) -> CosineTable:
        return cosine_table(self.dim, self.mu.dtype, self.mu.device, self.law)


def _point_mass(distance: Tensor) -> Tensor:
    """Return the log density of a point mass at a distance from it."""
    return torch.where(distance > 0, -torch.inf, torch.inf).to(distance.dtype)


def _log_peaks(kappas: tuple[Tensor, ...], dim: int) -> list[Tensor]:
    """Return `log_vmf_peak` of several kappas at once: on a GPU, its many small steps cost as much for one value."""
    sizes = [kappa.numel() for kappa in kappas]
    peaks = log_vmf_peak(torch.cat([kappa.flatten() for kappa in kappas]), dim).split(sizes)
    return [peak.view(kappa.shape) for peak, kappa in zip(peaks, kappas, strict=True)]


def _place(noise: Tensor, cosine: Tensor, sine: Tensor, mu: Tensor) -> Tensor:
    """Return points at the given polar angles around mu, in the tangent directions of noise[..., 1:].

    The reflection that swaps the first axis and mu (up to sign s of mu_0) takes (0, v) to (-s p, v) - p mu with
    p = mu_rest.v / (1 + |mu_0|), so z = (cosine - sine p) mu + sine (-s p, v). Its derivative in mu is bounded
    everywhere.
    """
    direction = noise[..., 1:]
    unit = direction / _norm_of_noise(direction, dim=-1)
    first, rest = mu[..., 0], mu[..., 1:]
    p = (unit * rest).sum(-1) / (1 + first.abs())
    sign = torch.where(first < 0, -1.0, 1.0).to(mu.dtype)
    tangent = torch.cat([(-sign * p).unsqueeze(-1), unit], dim=-1)
    point: Tensor = (cosine - sine * p).unsqueeze(-1) * mu + sine.unsqueeze(-1) * tangent
    return point


def _norm_of_noise(direction: Tensor, dim: int) -> Tensor:
    """Return norms of normal vectors; a single coordinate of 0 (one float32 in 1e7) has no direction and becomes 1."""
    if direction.shape[dim] == 1:
        direction.masked_fill_(direction == 0, 1.0)
        return direction.abs()
    return (direction * direction).sum(dim, keepdim=True).sqrt_()


def _place_around_one_mode(noise: Tensor, cosine: Tensor, sine: Tensor, mu: Tensor, out: Tensor) -> None:
    """Do the same as `_place` for one mu, as a product with the reflection's matrix: a third of the time at D = 10.

    The standard normals, (D, n), are overwritten; `out`, (n, D), receives the points.
    """
    axis = torch.where(mu[0] < 0, -mu, mu)
    axis[0] += 1
    reflection = torch.eye(len(mu), dtype=mu.dtype, device=mu.device) - torch.outer(axis, axis) / axis[0]
    reflection[0] = mu
    direction = noise[1:]
    direction *= sine / _norm_of_noise(direction, dim=0)
    noise[0] = cosine
    torch.mm(noise.T, reflection, out=out)
