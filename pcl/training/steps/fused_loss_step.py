"""The training step for CUDA with fused losses: what `IntegratedStep` fuses, HIB, and MCInfoNCE with drawn partners.

Kernels take scales per anchor, as each run may learn its own.

Axes: R runs, B anchors, A = R B.
"""

from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor, nn

from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.kernels.hib import MOST_SAMPLES, FusedHIB
from pcl.kernels.inputs import Partners
from pcl.kernels.mc_info_nce import FusedMCInfoNCE
from pcl.kernels.transport import SMALLEST_DIM, transport_table
from pcl.losses import HIB, Loss, MCInfoNCE
from pcl.losses.base import SampledMatch
from pcl.losses.log_mean import LogMean
from pcl.tasks import Negatives
from pcl.training.steps.integrated_step import IntegratedStep, of_runs


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
            hib = FusedHIB(table, loss.n_samples, loss.is_mean_inside, loss.negative_weight(n))
            a = self._of_anchors(lambda one: cast(HIB, one).a())
            b = self._of_anchors(lambda one: cast(HIB, one).offset())
            return partial(_hib, hib, a, b, self.seed_and_step)
        if loss.is_integrated or loss.log_mean is not LogMean.PLAIN:
            return None
        contrast = FusedMCInfoNCE(table, loss.n_samples, loss.positive_weight.of(n), loss.largest_kappa_pos)
        kappa_pos = self._of_anchors(lambda one: cast(MCInfoNCE, one).kappa_pos())
        return partial(_contrast, contrast, kappa_pos, self.seed_and_step)

    def _of_anchors(self, number: Callable[[Loss], Tensor | float]) -> Callable[[], Tensor]:
        """Return a function that returns a number of each anchor's loss, (A,), read at each call if it is learned."""
        read = partial(_read, self.losses, number, self.task.n_runs, self.config.training.batch_size, self.device)
        if isinstance(number(self._loss_of(0)), Tensor):
            return read
        fixed = read()
        return lambda: fixed


# Functions, not methods, as a step that holds its own methods would keep a GPU's memory until a garbage collection.
def _hib(
    hib: FusedHIB, a: Callable[[], Tensor], b: Callable[[], Tensor], seed_and_step: Tensor, partners: Partners
) -> Tensor:  # fmt: skip
    return hib(partners, a(), b(), seed_and_step)


def _contrast(
    contrast: FusedMCInfoNCE, kappa_pos: Callable[[], Tensor], seed_and_step: Tensor, partners: Partners
) -> Tensor:  # fmt: skip
    return contrast(partners, kappa_pos(), seed_and_step)


def _read(
    losses: nn.ModuleList, number: Callable[[Loss], Tensor | float], n_runs: int, batch_size: int, device: torch.device
) -> Tensor:  # fmt: skip
    return of_runs(losses, number, n_runs, device).unsqueeze(-1).expand(-1, batch_size).flatten()
