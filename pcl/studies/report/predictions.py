"""Posteriors that a trained encoder predicts in the controlled experiment, beside the true ones.

Axes: B inputs, D dim.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcl.training.run import Run


@dataclass(frozen=True)
class Predictions:
    """True and predicted posteriors of the evaluation's inputs."""

    seed: int
    mu_true: Tensor  # (B, D)
    kappa_true: Tensor  # (B,)
    mu: Tensor  # (B, D')
    kappa: Tensor  # (B,)

    @classmethod
    def read(cls, checkpoint: Path) -> "Predictions | None":
        """Restore a checkpoint and predict with its first seed's encoder; None if its task has no known truth."""
        run = Run.restore(checkpoint)
        truths = run.step.task.truths()
        if truths is None:
            return None
        with torch.no_grad():
            posterior = run.step.encoder(truths.x)
        return cls(run.seeds[0], truths.mu[0], truths.kappa[0], posterior.mu[0], posterior.kappa[0])
