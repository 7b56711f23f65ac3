"""Gaussian and Laplace noise around a mode, projected back to the sphere: posteriors of the controlled experiment.

z = (mu + e) / |mu + e| with independent coordinates of e. These have no simple density; the experiment only samples
them.
"""

from abc import abstractmethod
from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import constraints

from pcl.distributions.checks import sphere
from pcl.distributions.directional import Directional

_NOISES_AT_ONCE = 64  # with ten thousand posteriors, a block fits the caches


class _Projected(Directional):
    arg_constraints = {"mu": sphere, "kappa": constraints.positive}  # noqa: RUF012  torch declares it without a type
    allows_zero_kappa = False

    def rsample(self, sample_shape: Any = Size(), generator: torch.Generator | None = None) -> Tensor:  # noqa: B008
        """Draw samples with gradients in mu and kappa, (*sample_shape, *batch, D)."""
        shape = self._extended_shape(Size(sample_shape))
        noise = self._noise(torch.empty(shape, dtype=self.mu.dtype, device=self.mu.device), generator)
        return torch.nn.functional.normalize(self.mu + self._width().unsqueeze(-1) * noise, dim=-1)

    def sample(self, sample_shape: Any = Size(), generator: torch.Generator | None = None) -> Tensor:  # noqa: B008
        """Draw samples without gradients, (*sample_shape, *batch, D)."""
        with torch.no_grad():
            return self.rsample(sample_shape, generator)

    @torch.no_grad()
    def mean_abs_cosine(self, n_pairs: int, generator: torch.Generator) -> Tensor:
        """Estimate E|z.mu| from antithetic noise shared by the whole batch, in the shape of the batch.

        With shared noise, differences between posteriors come from mu and kappa alone. A pair is a noise vector and its
        mirror image.
        """
        noise = self._noise(self.mu.new_empty(n_pairs, self.mu.shape[-1]), generator)
        square = noise.square().sum(-1)
        width = self._width().unsqueeze(-1)
        total = torch.zeros_like(self.kappa)
        for part, of_part in zip(noise.split(_NOISES_AT_ONCE), square.split(_NOISES_AT_ONCE), strict=True):
            along, across = width * (self.mu @ part.T), 1 + width.square() * of_part
            for mirrored in (along, -along):
                total += ((1 + mirrored) / (across + 2 * mirrored).sqrt()).abs().sum(-1)
        return total / (2 * n_pairs)

    @abstractmethod
    def _width(self) -> Tensor: ...

    @abstractmethod
    def _noise(self, like: Tensor, generator: torch.Generator | None) -> Tensor: ...


class ProjectedNormal(_Projected):
    """Normal noise of variance 1/kappa in every coordinate around mu, projected to the sphere; inf gives the mode."""

    def _width(self) -> Tensor:
        return self.kappa.rsqrt()

    def _noise(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        return like.normal_(generator=generator)


class ProjectedLaplace(_Projected):
    """Laplace noise of scale b = 1/kappa in every coordinate around mu, projected to the sphere; inf gives the mode."""

    def _width(self) -> Tensor:
        return self.kappa.reciprocal()

    def _noise(self, like: Tensor, generator: torch.Generator | None) -> Tensor:
        # The difference of two exponentials is a Laplace variate; unlike the inverse CDF it has no logarithm of 0.
        minuend = like.exponential_(generator=generator)
        return minuend - torch.empty_like(like).exponential_(generator=generator)
