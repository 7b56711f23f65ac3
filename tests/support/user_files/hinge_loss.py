"""A user's own loss: a hinge on the expected likelihoods of an anchor with its positive and its negatives."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.losses import Loss, LossConfig, Triple


class Hinge(Loss):
    """max(0, margin - s+ + s-), in the mean over negatives, with similarities s in the log."""

    @dataclass(frozen=True)
    class Config(LossConfig):
        margin: float = 1.0

        def build(self) -> "Hinge":
            return Hinge(self)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

    def _per_anchor(self, posteriors: Triple, generator: torch.Generator | None) -> Tensor:
        anchor, positive, negatives = posteriors
        columns = VonMisesFisher(anchor.mu.unsqueeze(1), anchor.kappa.unsqueeze(1), validate_args=False)
        repelling = columns.log_expected_likelihood(negatives)
        attracting = anchor.log_expected_likelihood(positive).unsqueeze(1)
        return (self.config.margin - attracting + repelling).clamp(min=0).mean(-1)
