"""Shapes and validation of distribution parameters; each message names the wrong entry, its value and the remedy."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Size, Tensor
from torch.distributions import constraints

# Largest deviation of a squared norm from 1: far above the rounding of a normalised vector of 4096 entries.
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}


def broadcast_shape(*shapes: Sequence[int]) -> Size:
    """Return the common shape or raise a ValueError; torch's own function spends a second on imports."""
    first, *others = map(tuple, shapes)
    if all(other == first for other in others):
        return Size(first)  # also for torch.export's symbolic sizes, which NumPy would turn into numbers
    return Size(np.broadcast_shapes(first, *others))


def is_unit(vectors: Tensor) -> Tensor:
    """Return whether each vector along the last axis has unit norm, up to rounding."""
    return (vectors.double().square().sum(-1) - 1).abs() <= _TOLERANCE.get(vectors.dtype, 0.0)


class _Sphere(constraints.Constraint):
    """The constraint that vectors along the last axis have unit norm."""

    event_dim = 1

    def check(self, value: Tensor) -> Tensor:
        return is_unit(value)


sphere = _Sphere()


def check_unit_norm(name: str, vectors: Tensor) -> None:
    """Raise a ValueError that names the first vector that is not on the sphere."""
    bad = ~is_unit(vectors)
    if bad.any():
        at = _first(bad)
        norm = vectors[at].double().norm().item()
        raise ValueError(
            f"`{name}` must lie on the unit sphere, but {_entry(name, at)} has norm {norm:.6g}; "
            f"divide by the norm first."
        )


def check_concentration(name: str, kappa: Tensor, *, zero_allowed: bool) -> None:
    """Raise a ValueError that names the first concentration that is NaN, negative, or zero if that is not allowed."""
    good = kappa >= 0 if zero_allowed else kappa > 0
    if not good.all():
        at = _first(~good)
        rule = ">= 0" if zero_allowed else "> 0"
        raise ValueError(f"`{name} {rule}` must hold, but {_entry(name, at)} is {kappa[at].item():.6g}.")


def _first(mask: Tensor) -> tuple[int, ...]:
    return tuple(mask.nonzero()[0].tolist())


def _entry(name: str, index: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, index))}]" if index else name
