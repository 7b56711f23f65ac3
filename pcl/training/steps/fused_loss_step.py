"""The training step for CUDA with fused losses: what `IntegratedStep` fuses, HIB, and MCInfoNCE with drawn partners.

Axes: R runs, B anchors.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.kernels.hib import MOST_SAMPLES, FusedHIB
from pcl.kernels.inputs import Partners
from pcl.kernels.mc_info_nce import FusedMCInfoNCE
from pcl.kernels.transport import SMALLEST_DIM, transport_table
from pcl.losses.base import SampledMatch
from pcl.losses.log_mean import LogMean
from pcl.tasks import Negatives
from pcl.training.steps.integrated_step import IntegratedStep


class FusedLossStep(IntegratedStep):
    """A training step of any task."""

    def enter(self, trained: Trained, source: Negatives) -> list[nn.Parameter]:
        self._fused = self._fused_loss(source)
        return super().enter(trained, source)

    def losses_of(self, anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher) -> Tensor:
        n_runs, batch_size = anchor.batch_shape
        if self._fused is None:
            return super().losses_of(anchor, positive, negatives)
        triple = (anchor, positive, negatives)
        partners = Partners(*(d.mu.flatten(0, 1) for d in triple), *(d.kappa.flatten(0, 1) for d in triple))
        return self._fused(partners).view(n_runs, batch_size).mean(-1)

    def _fused_loss(self, source: Negatives) -> Callable[[Partners], Tensor] | None:
        """Return the loss of each anchor as a fused kernel, if there is one."""
        loss, dim = self.config.loss.fused, self.config.encoder.dim
        if loss is None or source.are_common or dim < SMALLEST_DIM:
            return None
        n = 1 if source is Negatives.IN_BATCH else self.config.training.n_negatives
        table = transport_table(dim, self.config.encoder.law, self.device)
        if isinstance(loss, SampledMatch):
            if loss.n_samples > MOST_SAMPLES:
                return None
            hib = FusedHIB(table, loss.n_samples, loss.a, loss.b, loss.is_mean_inside, loss.negative_weight(n))
            return lambda partners: hib(partners, self.seed_and_step)
        if loss.is_integrated or loss.is_learned or loss.log_mean is not LogMean.PLAIN:
            return None
        contrast = FusedMCInfoNCE(table, loss.n_samples, loss.positive_weight.of(n), loss.kappa_pos)
        kappa_pos = torch.full((1,), loss.kappa_pos, device=self.device)
        return lambda partners: contrast(partners, kappa_pos, self.seed_and_step)
