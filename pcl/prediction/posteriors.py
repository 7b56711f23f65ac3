"""A posterior in a user's terms: direction, concentration, credible angle and the nearest labelled neighbour.

Axes: N inputs, M references, D dim.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pcl.distributions import VonMisesFisher

LEVEL = 0.95  # of the credible cap, as in the paper
_BLOCK = 500  # inputs that are compared with all references at once
_SLACK = 1e-12  # of a cosine: a cap of angle 0 must still admit its own direction


@dataclass(frozen=True, eq=False)
class Reference:
    """A labelled set of embeddings to compare with."""

    mu: Tensor  # unit vectors (M, D), M at least 1
    labels: Tensor  # int64 (M,), places in `classes`
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if self.mu.ndim != 2 or len(self.mu) < 1 or self.labels.shape != self.mu.shape[:1]:
            shapes = f"{tuple(self.mu.shape)} and {tuple(self.labels.shape)}"
            raise ValueError(f"A reference set must have mu (M, D) and labels (M,), M >= 1, but got {shapes}.")


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The nearest reference of each input, by angle; of several at one angle, the first."""

    labels: list[str]  # names of their classes, N of them
    angle: Tensor  # between the two directions, radians (N,)
    is_inside: Tensor  # whether it lies in the input's credible cap, (N,)


@dataclass(frozen=True, eq=False)
class Prediction:
    """The answer of a model for N inputs."""

    mu: Tensor  # (N, D)
    kappa: Tensor  # (N,)
    credible_angle: Tensor  # of the cap around mu that holds 95% of the posterior, radians (N,), float64
    neighbours: Neighbours | None = None  # where the model has a reference set


def prediction_of(posterior: VonMisesFisher, reference: Reference | None = None) -> Prediction:
    """Return the prediction of a posterior with batch (N,).

    The credible angle is 0 for kappa = inf; for kappa = 0 it leaves out a cap of probability 0.05 at -mu.

    Example:
        >>> mu = torch.tensor([[1.0, 0.0, 0.0]])
        >>> reference = Reference(torch.eye(3), torch.tensor([0, 1, 1]), ("cat", "dog"))
        >>> found = prediction_of(VonMisesFisher(mu, torch.tensor([20.0])), reference)
        >>> round(float(found.credible_angle), 3), found.neighbours.labels, found.neighbours.is_inside.tolist()
        (0.554, ['cat'], [True])
    """
    # In float64: near 1, a cosine in float32 has half the digits of its angle.
    precise = VonMisesFisher(posterior.mu.double(), posterior.kappa.double(), validate_args=False)
    threshold = precise.credible_threshold(LEVEL)
    neighbours = None if reference is None else _neighbours(precise.mu, threshold, reference)
    return Prediction(posterior.mu, posterior.kappa, threshold.clamp(-1, 1).acos(), neighbours)


def angle_between(mu: Tensor, other: Tensor) -> Tensor:
    """Return the angle between unit vectors (..., D), by their chord: cosines near 1 keep only half of its digits."""
    chord: Tensor = (mu - other).norm(dim=-1)
    return 2 * (chord / 2).clamp(max=1).arcsin()


def _neighbours(mu: Tensor, threshold: Tensor, reference: Reference) -> Neighbours:
    known, mu = normalize(reference.mu.to(mu), dim=-1), normalize(mu, dim=-1)
    nearest = [(part @ known.T).max(dim=-1) for part in mu.split(_BLOCK)]
    cosine, place = (torch.cat(parts) for parts in zip(*nearest, strict=True))
    labels = reference.labels.to(place.device)[place].tolist()
    is_inside = cosine >= threshold - _SLACK
    return Neighbours([reference.classes[label] for label in labels], angle_between(mu, known[place]), is_inside)
