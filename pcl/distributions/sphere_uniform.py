"""The uniform distribution on the sphere S^{D-1}, the vMF's limit for kappa = 0."""

from typing import Any

import torch
from torch import Size, Tensor
from torch.distributions import Distribution

from pcl.distributions.checks import broadcast_shape, sphere
from pcl.mathematics.special import log_uniform_density


class SphereUniform(Distribution):
    """Uniform density 1 / area(S^{D-1}) on the unit sphere in D >= 2 dimensions, in batches of independent copies.

    Dtype and device are those of samples and densities, by default torch's; `validate_args` checks that values given to
    `log_prob` lie on the sphere.
    """

    arg_constraints = {}  # noqa: RUF012  torch declares it without a type
    support = sphere

    def __init__(
        self,
        dim: int,
        batch_shape: Any = Size(),  # noqa: B008  immutable
        dtype: torch.dtype | None = None,
        device: torch.device | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._zero = torch.zeros((), dtype=dtype, device=device)
        self._log_density = log_uniform_density(dim)
        super().__init__(Size(batch_shape), Size([dim]), validate_args=validate_args)

    @property
    def dim(self) -> int:
        """Dimension D of the space around the sphere."""
        return self.event_shape[0]

    def expand(self, batch_shape: Any, _instance: Any = None) -> "SphereUniform":
        self._zero.expand(self.batch_shape).expand(batch_shape)  # raises where the shapes do not fit
        return SphereUniform(
            self.dim, batch_shape, self._zero.dtype, self._zero.device, validate_args=self._validate_args
        )

    def __repr__(self) -> str:
        return f"SphereUniform(dim={self.dim}, batch_shape={tuple(self.batch_shape)})"

    @property
    def mean(self) -> Tensor:
        """Mean E[z] = 0."""
        return self._zero.expand(self.batch_shape + self.event_shape)

    @property
    def variance(self) -> Tensor:
        """Variance 1/D of each coordinate."""
        return (self._zero + 1 / self.dim).expand(self.batch_shape + self.event_shape)

    def sample(self, sample_shape: Any = Size(), generator: torch.Generator | None = None) -> Tensor:  # noqa: B008
        """Draw independent uniform points, (*sample_shape, *batch, D)."""
        shape = self._extended_shape(Size(sample_shape))
        normal = torch.randn(shape, dtype=self._zero.dtype, device=self._zero.device, generator=generator)
        return torch.nn.functional.normalize(normal, dim=-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density, which is the same everywhere on the sphere."""
        if self._validate_args:
            self._validate_sample(value)
        shape = broadcast_shape(value.shape[:-1], self.batch_shape)
        return torch.full(shape, self._log_density, dtype=value.dtype, device=value.device)

    def entropy(self) -> Tensor:
        """Return the logarithm of the sphere's area."""
        return (self._zero - self._log_density).expand(self.batch_shape)
