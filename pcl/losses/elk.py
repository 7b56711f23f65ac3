"""ELK: InfoNCE with the expected likelihood kernel of two posteriors as similarity.

Axes: B anchors, N negatives, D dim.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.losses.base import (
    Loss,
    LossConfig,
    Negatives,
    PositiveWeight,
    Triple,
    require,
    require_member,
    require_positive,
)
from pcl.losses.info_nce import info_nce
from pcl.losses.learned_scalar import LearnedAs, PositiveScalar


class ElkNegatives(Enum):
    """The similarities that repel."""

    GIVEN = "given"  # those with the negatives, as the paper writes it
    # Other anchors' similarities with their own positives, as the released code computes it if no negatives are drawn.
    # Then nothing repels: the loss has its minimum log 2 (at weight 1) for any collapsed embedding.
    ROLLED_POSITIVES = "rolled_positives"


class ElkNormalizer(Enum):
    """The form of log C_D in the similarity."""

    EXACT = "exact"
    FITTED = "fitted"  # the released code's regression, only for the dimensions of `_FIT`


# log C(kappa) = a + b kappa + c kappa^1.1 in the released code.
_FIT = {
    4: (-0.826604, -0.354357, -0.383723), 8: (-1.29737, 0.36841, -0.80936), 10: (-1.27184, 0.67365, -0.98726),
    16: (-0.23773, 1.39146, -1.39819), 32: (8.07579, 2.28954, -1.86925), 64: (38.82967, 2.34269, -1.77425),
}  # fmt: skip


class ELK(Loss):
    """InfoNCE with similarity kappa_pos log(integral of p q) instead of kappa_pos mu.mu'.

    For two vMFs the integral has a closed form: `VonMisesFisher.log_expected_likelihood`. Nothing is sampled. Gradients
    reach mu and kappa of all three distributions.
    """

    @dataclass(frozen=True)
    class Config(LossConfig):
        """Settings of the loss."""

        kappa_pos: float = 20.0  # factor of the log expected likelihood
        learn_kappa_pos: bool = False  # whether kappa_pos is learned
        learned_as: LearnedAs = LearnedAs.LOG  # parameter behind a learned kappa_pos
        positive_weight: PositiveWeight = PositiveWeight.ONE_OVER_N  # weight of the positive in the denominator
        negatives: ElkNegatives = ElkNegatives.GIVEN  # the similarities that repel
        normalizer: ElkNormalizer = ElkNormalizer.EXACT  # the form of log C_D in the similarity

        def __post_init__(self) -> None:
            require_positive("kappa_pos", self.kappa_pos)
            require_member("learned_as", self.learned_as, LearnedAs)
            require_member("positive_weight", self.positive_weight, PositiveWeight)
            require_member("negatives", self.negatives, ElkNegatives)
            require_member("normalizer", self.normalizer, ElkNormalizer)

        def build(self) -> "ELK":
            return ELK(self)

        def check(self, dim: int, sources: Collection[Negatives]) -> None:
            if self.normalizer is ElkNormalizer.FITTED:
                ELK.require_fitted(dim)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.kappa_pos = PositiveScalar(config.kappa_pos, config.learn_kappa_pos, config.learned_as)
        self._is_rolled = config.negatives is ElkNegatives.ROLLED_POSITIVES

    @property
    def mixes_anchors(self) -> bool:
        return self._is_rolled

    def expect(self, source: Negatives) -> None:
        """Roll the positives, if configured, only for in-batch negatives, as the release does."""
        self._is_rolled = source is Negatives.IN_BATCH and self.config.negatives is ElkNegatives.ROLLED_POSITIVES

    def _per_anchor(self, posteriors: Triple, generator: torch.Generator | None) -> Tensor:
        anchor, positive, negatives = posteriors
        kappa_pos = self.kappa_pos()
        if self._is_rolled:
            attracting = kappa_pos * self._similarity(anchor, positive)
            repelling = attracting.roll(-1).unsqueeze(-1)
        else:
            columns = VonMisesFisher(anchor.mu.unsqueeze(1), anchor.kappa.unsqueeze(1), validate_args=False)
            similarity = kappa_pos * self._similarity(columns, _positive_first(positive, negatives))
            attracting, repelling = similarity[:, 0], similarity[:, 1:]
        return info_nce(attracting, repelling, self.config.positive_weight.of(repelling.shape[-1]))

    @staticmethod
    def require_fitted(dim: int) -> None:
        """Raise a ValueError unless the fitted normalizer supports a dimension."""
        require(dim in _FIT, f"The fitted normalizer needs a dimension of {', '.join(map(str, _FIT))}, but got {dim}.")

    def _similarity(self, first: VonMisesFisher, second: VonMisesFisher) -> Tensor:
        if self.config.normalizer is ElkNormalizer.EXACT:
            return first.log_expected_likelihood(second)
        dim = first.dim
        self.require_fitted(dim)
        resultant_sq = (first.kappa.unsqueeze(-1) * first.mu + second.kappa.unsqueeze(-1) * second.mu).square().sum(-1)
        resultant = resultant_sq.clamp(min=torch.finfo(resultant_sq.dtype).tiny).sqrt()
        return _fitted(first.kappa, dim) + _fitted(second.kappa, dim) - _fitted(resultant, dim)


def _positive_first(positive: VonMisesFisher, negatives: VonMisesFisher) -> VonMisesFisher:
    """Return each anchor's positive and negatives in one batch (B, 1 + N), to compute all similarities at once."""
    n_anchors, n_negatives = len(positive.kappa), negatives.kappa.shape[-1]
    mu = torch.cat([positive.mu.unsqueeze(1), negatives.mu.expand(n_anchors, n_negatives, -1)], 1)
    kappa = torch.cat([positive.kappa.unsqueeze(1), negatives.kappa.expand(n_anchors, n_negatives)], 1)
    return VonMisesFisher(mu, kappa, validate_args=False)


def _fitted(kappa: Tensor, dim: int) -> Tensor:
    a, b, c = _FIT[dim]
    return a + b * kappa + c * kappa.pow(1.1)
