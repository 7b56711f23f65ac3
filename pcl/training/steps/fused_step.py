"""The training step with fused kernels, with the same statistics as `TrainingStep`, its reference.

Kernels compute the latents of the data, the networks and what `FusedLossStep` fuses. The mu network is in half
precision where it is deep, or not trained; this has ten bits of mantissa, like the TF32 products of the graph's plain
networks. The rest is the plain step, inside the same graph.

Axes: R runs, B anchors.
"""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.encoders import Backbone, MlpEncoder
from pcl.encoders.mlp import Hidden
from pcl.kernels.latents import sample_latents
from pcl.kernels.networks.narrow_mlp import NarrowMlp, fits
from pcl.kernels.networks.wide_mlp import WideMlp
from pcl.kernels.transport import SMALLEST_DIM, TransportTable, transport_table
from pcl.tasks import Batch, Family, Negatives, ToyTask
from pcl.tasks.pairs import LatentSampler
from pcl.training.steps.fused_loss_step import FusedLossStep
from pcl.training.steps.input_bank import InputBank, n_slots_of


class FusedStep(FusedLossStep):
    """A training step of the controlled experiment on a CUDA device."""

    task: ToyTask
    encoder: MlpEncoder

    def enter(self, trained: Trained, source: Negatives) -> list[nn.Parameter]:
        task, encoder = self.task, self.encoder
        self.latents: LatentSampler | None = None
        if task.config.family is Family.VMF and task.config.dim >= SMALLEST_DIM:
            of_truth = transport_table(task.config.dim, task.truth.law, self.device)
            self.latents = partial(_latents, of_truth, self.seed_and_step)
        is_wide = trained is Trained.KAPPA or encoder.config.hidden is Hidden.DEEP
        self._wide_mu_net = WideMlp(encoder.mu_net) if is_wide else None
        # A narrow network passes no gradient to its inputs; only a shared backbone needs that, for mu.
        is_narrow = fits(encoder.kappa_net) and encoder.config.backbone is Backbone.INDEPENDENT
        self._kappa_net = NarrowMlp(encoder.kappa_net) if is_narrow else encoder.kappa_net
        self._is_kappa_fixed = trained is Trained.MU and encoder.config.backbone is Backbone.INDEPENDENT
        self._bank = self._new_bank() if trained is Trained.KAPPA and source is Negatives.DRAWN else None
        return super().enter(trained, source)

    def _drawn(self) -> Batch:
        task, training = self.task, self.config.training
        sizes = training.batch_size, self.source, training.n_negatives
        if self._bank is not None:
            self._bank.renew(self.seed_and_step[1], self.generator)
        return task.draw(*sizes, self.generator, self.latents, self._bank)

    def prepare(self) -> tuple[Tensor, ...]:
        """Return inputs and, if this phase does not train it, their mu or kappa."""
        (x,) = super().prepare()
        if self._bank is not None:
            return self._bank.inputs_and_modes(x)
        if self.trained is Trained.KAPPA:
            assert self._wide_mu_net is not None
            return x, _frozen_modes(self._wide_mu_net, x)
        if self._is_kappa_fixed:
            return x, self._kappa(x)
        return (x,)

    def encode(self, x: Tensor, *known: Tensor) -> VonMisesFisher:
        """Return posteriors of inputs, whose mu or kappa is given if this phase does not train it."""
        encoder = self.encoder
        mu = known[0] if known and not self._is_kappa_fixed else normalize(self._raw_mu(x), dim=-1)
        kappa = known[0] if known and self._is_kappa_fixed else self._kappa(encoder.kappa_input(x, mu))
        return VonMisesFisher(mu, kappa, validate_args=False, law=encoder.law)

    def _new_bank(self) -> InputBank:
        assert self._wide_mu_net is not None
        task, training = self.task, self.config.training
        n_used = training.batch_size * (2 + training.n_negatives)
        n_numbers = task.config.dim_x + self.encoder.config.dim + task.config.dim + 1
        n_slots = n_slots_of(4 * n_numbers * task.n_runs, n_used * training.n_batches)
        return InputBank(task.pairs, partial(_frozen_modes, self._wide_mu_net), n_used, n_slots, self.generator)

    def _raw_mu(self, x: Tensor) -> Tensor:
        result: Tensor = self.encoder.mu_net(x) if self._wide_mu_net is None else self._wide_mu_net(x)
        return result

    def _kappa(self, inputs: Tensor) -> Tensor:
        kappa: Tensor = self.encoder.kappa_head(self._kappa_net(inputs))
        return kappa


# Functions, not methods, as a step that holds its own methods would keep a GPU's memory until a garbage collection.
def _frozen_modes(net: WideMlp, x: Tensor) -> Tensor:
    return normalize(net.frozen(x), dim=-1)


def _latents(
    table: TransportTable, seed_and_step: Tensor, mu: Tensor, kappa: Tensor, _generator: torch.Generator
) -> Tensor:  # fmt: skip
    return sample_latents(table, mu, kappa, seed_and_step)
