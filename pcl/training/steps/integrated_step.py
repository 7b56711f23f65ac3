"""Training step for CUDA with a fused MCInfoNCE: integrated partners, negatives shared by the batch.

Its reference is `TrainingStep`, whose loss computes every similarity in float64; here kernels sum them by a table. With
one run, both draw the same random numbers. Log weights of guided samples are off by up to 2e-5 at a kappa of 50, and
3e-3 at 10,000 (D = 8).

Axes: R runs, B anchors, K samples, N negatives, D dim.
"""

import math
from typing import cast

import torch
from torch import Tensor, nn

from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.kernels.integrated import log_mean_similarity
from pcl.losses.base import LossConfig, SampledContrast
from pcl.losses.mc_info_nce import MCInfoNCE, guiding_law
from pcl.mathematics.normalizer_table import GrowthTable, growth_table
from pcl.mathematics.point_limit import is_concentrated, is_nearly_a_point, point_similarity
from pcl.tasks import Negatives
from pcl.training.steps.training_step import TrainingStep

_LARGEST_DIM = 128  # that was tested on a GPU


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
        kappa_pos = self._kappa_pos(contrast, n_runs)
        of_anchors, of_samples = kappa_pos.view(-1, 1), kappa_pos.view(-1, 1, 1)
        table = growth_table(anchor.dim, self.device)
        z, log_weight = self._anchor_samples(contrast, anchor, positive, of_anchors, table)
        cosine = (z * positive.mu.unsqueeze(1)).sum(-1)
        is_point = is_concentrated(positive.kappa, of_anchors)
        spread = torch.where(is_point, 1.0, positive.kappa)
        kappa = spread.unsqueeze(1)
        resultant = (kappa.square() + of_samples.square() + 2 * of_samples * kappa * cosine).clamp(min=1e-12).sqrt()
        closed = table(resultant) - table(spread).unsqueeze(1)
        point = torch.where(is_point, positive.kappa, torch.inf).unsqueeze(1)
        limit = point_similarity(point, cosine, of_samples, anchor.dim)
        attracting = torch.where(is_point.unsqueeze(1), limit, closed)
        repelling = log_mean_similarity(
            z.flatten(1, 2), negatives.mu.squeeze(1), negatives.kappa.squeeze(1), kappa_pos, table
        )
        log_ratio = log_weight + attracting - repelling.view(n_runs, -1, batch_size)
        return (math.log(contrast.n_samples) - torch.logsumexp(log_ratio, dim=1)).mean(-1)

    def _kappa_pos(self, contrast: SampledContrast, n_runs: int) -> Tensor:
        """Return the concentration of positive pairs of each run, (R,)."""
        if not contrast.is_learned:
            return torch.full((n_runs,), contrast.kappa_pos, device=self.device)
        return torch.stack([torch.as_tensor(cast(MCInfoNCE, self._loss_of(run)).kappa_pos()) for run in range(n_runs)])

    def _anchor_samples(
        self, contrast: SampledContrast, anchor: VonMisesFisher, positive: VonMisesFisher, kappa_pos: Tensor,
        table: GrowthTable,
    ) -> tuple[Tensor, Tensor | float]:  # fmt: skip
        """Draw samples of the anchors, (R, K, B, D), and return them with their log weights."""
        shape = (contrast.n_samples,)
        if not contrast.is_guided:
            return anchor.rsample(shape, self.generator).transpose(0, 1), 0.0
        guide = guiding_law(anchor, positive, kappa_pos, lambda kappa: table.lookup(kappa)[1])
        z = guide.rsample(shape, self.generator).transpose(0, 1)
        is_point = is_nearly_a_point(anchor.kappa, kappa_pos)  # those are their own guides, of weight 1
        kappas = [torch.where(is_point, 1.0, law.kappa) for law in (anchor, guide)]
        own, drawn = (_log_density(law.mu, kappa, z, table) for law, kappa in zip((anchor, guide), kappas, strict=True))
        return z, torch.where(is_point.unsqueeze(1), 0.0, own - drawn)


def _contrast(loss: LossConfig) -> SampledContrast | None:
    """Return the numbers of the loss, if the kernel has it."""
    contrast = loss.fused
    return contrast if isinstance(contrast, SampledContrast) and contrast.is_integrated else None


def _log_density(mu: Tensor, kappa: Tensor, z: Tensor, table: GrowthTable) -> Tensor:
    """Return log Q(z) for samples (R, K, B, D), up to a constant."""
    cosine = (z * mu.unsqueeze(1)).sum(-1)
    return kappa.unsqueeze(1) * cosine - table(kappa).unsqueeze(1)
