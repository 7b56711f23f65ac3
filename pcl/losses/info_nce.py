"""InfoNCE on point estimates, that is on the modes alone.

Axes: B anchors, N negatives, D dim.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from pcl.losses.base import (
    Loss,
    LossConfig,
    PositiveWeight,
    Triple,
    contrastive_log_ratio,
    require_member,
    require_positive,
)
from pcl.losses.learned_scalar import LearnedAs, PositiveScalar


def info_nce(positive: Tensor, negatives: Tensor, positive_weight: float) -> Tensor:
    """Return -log e^s / (w e^s + 1/N sum_n e^{s_n}), (B,), of similarities (B,) and (B, N); w is 1/N in the paper."""
    return -contrastive_log_ratio(positive, negatives, positive_weight)


class InfoNCE(Loss):
    """InfoNCE with similarity kappa_pos mu.mu': see `info_nce` for the formula. No gradient reaches any kappa."""

    @dataclass(frozen=True)
    class Config(LossConfig):
        """Settings of the loss."""

        trains_kappa: ClassVar[bool] = False

        kappa_pos: float = 20.0  # concentration of positive pairs, which scales cosines to similarities
        learn_kappa_pos: bool = False  # whether kappa_pos is learned
        learned_as: LearnedAs = LearnedAs.LOG  # parameter behind a learned kappa_pos
        positive_weight: PositiveWeight = PositiveWeight.ONE_OVER_N  # weight of the positive in the denominator

        def __post_init__(self) -> None:
            require_positive("kappa_pos", self.kappa_pos)
            require_member("learned_as", self.learned_as, LearnedAs)
            require_member("positive_weight", self.positive_weight, PositiveWeight)

        def build(self) -> "InfoNCE":
            return InfoNCE(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.kappa_pos = PositiveScalar(config.kappa_pos, config.learn_kappa_pos, config.learned_as)

    def _per_anchor(self, posteriors: Triple, generator: torch.Generator | None) -> Tensor:
        anchor, positive, negatives = posteriors
        kappa_pos = self.kappa_pos()
        positive_cosines = (anchor.mu * positive.mu).sum(-1)
        negative_cosines = (anchor.mu.unsqueeze(1) * negatives.mu).sum(-1)
        weight = self.config.positive_weight.of(posteriors.n_negatives)
        return info_nce(kappa_pos * positive_cosines, kappa_pos * negative_cosines, weight)
