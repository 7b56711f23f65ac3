"""Base class of the distributions around a mode on the sphere: parameters, shapes and validation."""

from typing import Any, ClassVar, Self

import torch
from torch import Size, Tensor
from torch.distributions import Distribution, constraints

from pcl.distributions.checks import broadcast_shape, check_concentration, check_unit_norm, sphere


class Directional(Distribution):
    """A distribution on the unit sphere in D >= 2 dimensions with a mode mu and a concentration kappa.

    Args:
        mu: Modes of unit norm, (*batch, D).
        kappa: Concentrations, (*batch); broadcast against the batch of mu.
        validate_args: Check every mu and kappa. As everywhere in torch.distributions this is on by default (until
            the process first uses torch.compile, which turns torch's default off), and on a GPU it waits for the
            device; sampling never does.
    """

    # torch declares the next three without types
    arg_constraints = {"mu": sphere, "kappa": constraints.nonnegative}  # noqa: RUF012
    support = sphere
    has_rsample = True

    allows_zero_kappa: ClassVar[bool]
    mu: Tensor
    kappa: Tensor

    def __init__(self, mu: Tensor, kappa: Tensor | float, validate_args: bool | None = None) -> None:
        if mu.ndim < 1 or mu.shape[-1] < 2:
            raise ValueError(f"`mu` must have a last axis of at least 2 entries, but got shape {tuple(mu.shape)}.")
        # Half precision would place samples on a grid of a few hundred angles.
        dtype = torch.promote_types(mu.dtype, torch.float32)
        if isinstance(kappa, Tensor):
            dtype = torch.promote_types(dtype, kappa.dtype)
        kappa = torch.as_tensor(kappa, dtype=dtype, device=mu.device)
        try:
            batch_shape = broadcast_shape(mu.shape[:-1], kappa.shape)
        except ValueError:
            got = f"mu {tuple(mu.shape)} and kappa {tuple(kappa.shape)}"
            raise ValueError(f"`kappa` must broadcast to the batch of `mu`, (*batch, D), but got {got}.") from None
        check = Distribution._validate_args if validate_args is None else validate_args
        if check:
            check_unit_norm("mu", mu)
            check_concentration("kappa", kappa, zero_allowed=self.allows_zero_kappa)
        if mu.dtype in (torch.float16, torch.bfloat16):  # its norm is 1 only to three digits
            mu = torch.nn.functional.normalize(mu.to(dtype), dim=-1)
        self.mu = mu.to(dtype).expand(*batch_shape, mu.shape[-1])
        self.kappa = kappa.expand(batch_shape)
        # torch's own check would repeat the above with a message that does not name the entry.
        super().__init__(batch_shape, mu.shape[-1:], validate_args=False)
        self._validate_args = bool(check)

    @property
    def dim(self) -> int:
        """Dimension D of the space around the sphere."""
        return self.event_shape[0]

    @property
    def mode(self) -> Tensor:
        """The direction mu."""
        return self.mu

    def expand(self, batch_shape: Any, _instance: Any = None) -> Self:
        """Return the same distribution with its batch broadcast to another shape."""
        batch_shape = Size(batch_shape)
        mu, kappa = self.mu.expand(*batch_shape, self.dim), self.kappa.expand(batch_shape)
        expanded = type(self)(mu, kappa, validate_args=False)
        expanded._validate_args = self._validate_args
        return expanded
