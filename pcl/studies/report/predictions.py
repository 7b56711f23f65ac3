"""Posteriors that a trained encoder predicts in the controlled experiment, beside the true ones.

Axes: B inputs, D dim.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcl.tasks import ToyTask
from pcl.training.run import Run


@dataclass(frozen=True)
class Predictions:
    """True and predicted posteriors of the evaluation's inputs.

    Attributes:
        seed: Of the run.
        mu_true: (B, D)
        kappa_true: (B,)
        mu: (B, D')
        kappa: (B,)
    """

    seed: int
    mu_true: Tensor
    kappa_true: Tensor
    mu: Tensor
    kappa: Tensor

    @classmethod
    def read(cls, checkpoint: Path) -> "Predictions":
        """Restore a checkpoint and predict with its first seed's encoder."""
        run = Run.restore(checkpoint)
        task = run.step.task
        assert isinstance(task, ToyTask)
        with torch.no_grad():
            posterior = run.step.encoder(task.x_eval)
        return cls(run.seeds[0], task.mu_true[0], task.kappa_true[0], posterior.mu[0], posterior.kappa[0])
