"""Training step for CUDA with a fused MCInfoNCE: integrated partners, negatives shared by the batch.

Its reference is `TrainingStep`, whose loss computes every similarity in float64; here kernels sum them from a table.
With one run, both draw the same random numbers. Terms of guided samples, weight and similarity to the positive, are off
by less than 1e-4 at anchors' kappas of 50 and 10,000 (D = 8, under Triton's interpreter).

Axes: R runs, B anchors, K samples, N negatives, D dim.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn

from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.distributions.law import EXACT_LAW
from pcl.kernels.integrated.log_mean import log_mean_similarity
from pcl.kernels.integrated.normalizer import growth_of
from pcl.kernels.integrated.samples import samples_of
from pcl.kernels.integrated.terms import log_terms
from pcl.losses.base import Loss, LossConfig, SampledContrast
from pcl.losses.log_mean import log_mean_exp
from pcl.losses.mc_info_nce import MCInfoNCE, guiding_law
from pcl.mathematics.normalizer_table import growth_table
from pcl.tasks import Negatives
from pcl.training.steps.training_step import TrainingStep

_LARGEST_DIM = 128  # largest dimension tested on a GPU


class IntegratedStep(TrainingStep):
    """A training step of any task."""

    def enter(self, trained: Trained, source: Negatives) -> list[nn.Parameter]:
        self._contrast = _contrast(self.config.loss) if source.are_common else None
        return super().enter(trained, source)

    def losses_of(self, anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher) -> Tensor:
        is_possible = anchor.dim <= _LARGEST_DIM and anchor.mu.dtype is torch.float32
        if self._contrast is None or not is_possible:
            return super().losses_of(anchor, positive, negatives)
        return self._integrated(self._contrast, anchor, positive, negatives)

    def _integrated(
        self, contrast: SampledContrast, anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher
    ) -> Tensor:
        n_runs, batch_size = anchor.batch_shape
        kappa_pos = of_runs(self.losses, lambda loss: cast(MCInfoNCE, loss).kappa_pos(), n_runs, self.device)
        table = growth_table(anchor.dim, self.device)
        guide = anchor
        if contrast.is_guided:
            guide = guiding_law(anchor, positive, kappa_pos.unsqueeze(-1), lambda kappa: growth_of(kappa, table)[1])
        z = self._samples_of(guide, contrast.n_samples)
        repelling = log_mean_similarity(
            z.flatten(1, 2), negatives.mu.squeeze(1), negatives.kappa.squeeze(1), kappa_pos, table
        )
        log_ratio = log_terms(z, anchor, guide, positive, kappa_pos, table) - repelling.view(n_runs, -1, batch_size)
        return -log_mean_exp(log_ratio, 1, contrast.log_mean).mean(-1)

    def _samples_of(self, law: VonMisesFisher, n_samples: int) -> Tensor:
        """Draw samples, (R, K, B, D)."""
        if law.law != EXACT_LAW:
            return law.rsample((n_samples,), self.generator).transpose(0, 1)
        return samples_of(law, torch.randn((n_samples, *law.mu.shape), device=self.device, generator=self.generator))


def _contrast(loss: LossConfig) -> SampledContrast | None:
    """Return the numbers of the loss, if the kernel computes it."""
    contrast = loss.fused
    return contrast if isinstance(contrast, SampledContrast) and contrast.is_integrated else None


def of_runs(
    losses: nn.ModuleList, number: Callable[[Loss], Tensor | float], n_runs: int, device: torch.device
) -> Tensor:  # fmt: skip
    """Return a number of each run's loss, (R,); if it is learned, gradients reach every run's own parameter."""
    numbers = [number(cast(Loss, loss)) for loss in losses]
    learned = [value for value in numbers if isinstance(value, Tensor)]
    return torch.stack(learned) if learned else torch.full((n_runs,), float(numbers[0]), device=device)
