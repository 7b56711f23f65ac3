"""Posteriors that a trained encoder predicts in the controlled experiment, and the true ones.

Axes: B inputs, D dim of the truth, D' of the encoder.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcl.metrics.coverage import aligned, coverage
from pcl.training.run import Run

LEVELS = tuple(percent / 100 for percent in range(5, 100, 5))  # of credible caps


@dataclass(frozen=True)
class Predictions:
    """True and predicted posteriors of the evaluation's inputs."""

    seed: int
    mu_true: Tensor  # (B, D)
    kappa_true: Tensor  # (B,)
    mu: Tensor  # (B, D')
    kappa: Tensor  # (B,)
    # Share of true latents in the credible caps at `LEVELS`; none where the two spheres have different dimensions
    covered: Tensor | None = None

    @classmethod
    def read(cls, checkpoint: Path) -> "Predictions | None":
        """Restore a checkpoint and predict with its first seed's encoder; None if its task has no known truth."""
        run = Run.restore(checkpoint)
        truths = run.step.task.truths()
        if truths is None:
            return None
        with torch.no_grad():
            posterior = run.step.encoder(truths.x)
        covered = None
        if truths.z is not None and posterior.mu.shape == truths.mu.shape:
            caps = posterior.credible_threshold(torch.tensor(LEVELS).view(-1, 1, 1))
            covered = coverage(aligned(posterior.mu, truths.mu), caps, truths.z)[:, 0]
        return cls(run.seeds[0], truths.mu[0], truths.kappa[0], posterior.mu[0], posterior.kappa[0], covered)
