"""Calibration of a loss: the c that minimises it for the true posteriors with kappa-hat = c kappa; 1 is calibrated.

It is a cheap check before a grid: a cell whose loss has its minimum at infinity trains kappa to infinity.

Axes: B anchors, N negatives, D dim.
"""

import math
from dataclasses import dataclass

import torch

from pcl.distributions import EXACT_LAW, CosineLaw, VonMisesFisher
from pcl.losses import Loss, in_batch_negatives
from pcl.tasks.base import Negatives, Task

_BLOCK = 128
# Fine around 1, coarse towards the ends; the last stands for infinity.
FACTORS = (0.25, 0.5, 0.75, 1.0, 4 / 3, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


@dataclass(frozen=True)
class Calibration:
    """The result of a scan."""

    factors: tuple[float, ...]  # the c tried
    losses: tuple[float, ...]  # mean loss at each
    errors: tuple[float, ...]  # standard error of each loss's difference to that of the best c, over blocks of anchors

    @property
    def best(self) -> float:
        """The c with the smallest loss; infinite if that is the last, or if the loss never rises again."""
        index = min(range(len(self.losses)), key=self.losses.__getitem__)
        is_flat = self.losses[-1] - self.losses[index] <= 2 * self.errors[-1]
        return math.inf if index == len(self.losses) - 1 or is_flat else self.factors[index]

    @property
    def warning(self) -> str:
        """Warning for a user if the optimum is infinite, else empty."""
        if math.isfinite(self.best):
            return ""
        return (
            f"The loss has no finite optimum in kappa: for the true posteriors, it still falls at "
            f"{self.factors[-1]:g} times the true kappa. Training will drive kappa to infinity."
        )


@torch.no_grad()
def calibration_scan(
    task: Task,
    loss: Loss,
    source: Negatives = Negatives.DRAWN,
    n_negatives: int = 32,
    n_anchors: int = 8192,
    factors: tuple[float, ...] = FACTORS,
    law: CosineLaw = EXACT_LAW,
    seed: int = 0,
) -> Calibration:
    """Scan c for the first run of a task.

    All c use the same anchors, positives and negatives and the same random numbers, so that their differences are
    known far better than the losses. The task must have a known truth of vMF posteriors. Anchors are rounded up to
    blocks of 128, over which errors are estimated; `factors` are the c to try, rising, the last for infinity.
    """
    truths = task.truths()
    if truths is None:
        raise ValueError("A calibration scan needs a known truth: take the task 'toy'.")
    if n_anchors < 2 * _BLOCK:
        raise ValueError(f"`n_anchors >= {2 * _BLOCK}` must hold, but got {n_anchors}.")
    generator = torch.Generator(truths.x.device).manual_seed(seed)
    blocks = []
    for _ in range(-(-n_anchors // _BLOCK)):
        batch = task.draw(_BLOCK, source, n_negatives, generator)
        parameters = [task.truth_of(x.flatten(1, -2)) for x in batch]
        state = generator.get_state()
        losses = []
        for factor in factors:
            generator.set_state(state)
            anchor, positive, negatives = (
                VonMisesFisher(mu[0], factor * kappa[0], validate_args=False, law=law) for mu, kappa in parameters
            )
            if source is Negatives.IN_BATCH:
                negatives = in_batch_negatives(positive)
            else:
                shape = (batch.negatives.shape[1], n_negatives)
                mu, kappa = negatives.mu.view(*shape, -1), negatives.kappa.view(shape)
                negatives = VonMisesFisher(mu, kappa, validate_args=False, law=law)
            losses.append(loss(anchor, positive, negatives, generator=generator).mean())
        blocks.append(torch.stack(losses).double())
    table = torch.stack(blocks)
    mean = table.mean(0)
    difference = table - table[:, mean.argmin()].unsqueeze(1)
    error = difference.std(0) / math.sqrt(len(table))
    return Calibration(tuple(factors), tuple(mean.tolist()), tuple(error.tolist()))
