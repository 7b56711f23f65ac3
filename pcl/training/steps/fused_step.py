"""The training step with fused kernels, with the same statistics as `TrainingStep`, its reference.

Kernels compute the latents of the data, value and gradient of HIB and of MCInfoNCE with drawn partners, and what
`IntegratedStep` fuses. A mu network that a phase does not train runs in half precision, which has ten bits of mantissa
like the TF32 products that it replaces. The rest is the plain step, inside the same graph.

Axes: R runs, B anchors, K samples, N negatives, D dim.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu_, normalize, pad

from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.encoders import Backbone, MlpEncoder, StackedMlp
from pcl.kernels.hib import MOST_SAMPLES, FusedHIB
from pcl.kernels.inputs import Partners
from pcl.kernels.latents import sample_latents
from pcl.kernels.mc_info_nce import LARGEST_KAPPA_POS, FusedMCInfoNCE
from pcl.kernels.narrow_mlp import NarrowMlp, fits
from pcl.kernels.transport import SMALLEST_DIM, transport_table
from pcl.losses.base import SampledMatch
from pcl.losses.log_mean import LogMean
from pcl.tasks import Batch, Family, Negatives, ToyTask
from pcl.tasks.toy import LatentSampler
from pcl.training.steps.integrated_step import IntegratedStep


class FusedStep(IntegratedStep):
    """A training step of the controlled experiment on a CUDA device."""

    task: ToyTask
    encoder: MlpEncoder

    def enter(self, trained: Trained, source: Negatives) -> list[nn.Parameter]:
        task, encoder = self.task, self.encoder
        self.latents: LatentSampler | None = None
        if task.config.family is Family.VMF and task.config.dim >= SMALLEST_DIM:
            of_truth = transport_table(task.config.dim, task.truth.law, self.device)
            self.latents = lambda mu, kappa, _: sample_latents(of_truth, mu, kappa, self.seed_and_step)
        self._half_mu_net = HalfMlp(encoder.mu_net) if trained is Trained.KAPPA else None
        # A narrow network passes no gradient to its inputs; only a shared backbone needs that, for mu.
        is_narrow = fits(encoder.kappa_net) and encoder.config.backbone is Backbone.INDEPENDENT
        self._kappa_net = NarrowMlp(encoder.kappa_net) if is_narrow else encoder.kappa_net
        self._is_kappa_fixed = trained is Trained.MU and encoder.config.backbone is Backbone.INDEPENDENT
        self._fused = self._fused_loss(source)
        return super().enter(trained, source)

    def _fused_loss(self, source: Negatives) -> Callable[[Partners], Tensor] | None:
        """Return the loss of each anchor as a fused kernel, if there is one."""
        loss, dim = self.config.loss.fused, self.encoder.config.dim
        if loss is None or source.are_common or dim < SMALLEST_DIM:
            return None
        n = 1 if source is Negatives.IN_BATCH else self.config.training.n_negatives
        table = transport_table(dim, self.encoder.law, self.device)
        if isinstance(loss, SampledMatch):
            if loss.n_samples > MOST_SAMPLES:
                return None
            hib = FusedHIB(table, loss.n_samples, loss.a, loss.b, loss.is_mean_inside, loss.negative_weight(n))
            return lambda partners: hib(partners, self.seed_and_step)
        is_plain = not (loss.is_integrated or loss.is_learned) and loss.log_mean is LogMean.PLAIN
        if not is_plain or loss.kappa_pos > LARGEST_KAPPA_POS:
            return None
        contrast = FusedMCInfoNCE(table, loss.n_samples, loss.positive_weight.of(n))
        kappa_pos = torch.full((1,), loss.kappa_pos, device=self.device)
        return lambda partners: contrast(partners, kappa_pos, self.seed_and_step)

    def _drawn(self) -> Batch:
        training = self.config.training
        return self.task.draw(training.batch_size, self.source, training.n_negatives, self.generator, self.latents)

    def prepare(self) -> tuple[Tensor, ...]:
        """Return inputs and, if this phase does not train it, their mu or kappa."""
        (x,) = super().prepare()
        if self._half_mu_net is not None:
            return x, normalize(self._half_mu_net(x), dim=-1)
        if self._is_kappa_fixed:
            return x, self._kappa(x)
        return (x,)

    def encode(self, x: Tensor, *known: Tensor) -> VonMisesFisher:
        """Return posteriors of inputs, whose mu or kappa is given if this phase does not train it."""
        encoder = self.encoder
        mu = known[0] if known and not self._is_kappa_fixed else encoder.mu(x)
        kappa = known[0] if known and self._is_kappa_fixed else self._kappa(encoder.kappa_input(x, mu))
        return VonMisesFisher(mu, kappa, validate_args=False, law=encoder.law)

    def _kappa(self, inputs: Tensor) -> Tensor:
        kappa: Tensor = self.encoder.kappa_head(self._kappa_net(inputs))
        return kappa

    def losses_of(self, anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher) -> Tensor:
        n_runs, batch_size = anchor.batch_shape
        if self._fused is None:
            return super().losses_of(anchor, positive, negatives)
        triple = (anchor, positive, negatives)
        partners = Partners(*(d.mu.flatten(0, 1) for d in triple), *(d.kappa.flatten(0, 1) for d in triple))
        return self._fused(partners).view(n_runs, batch_size).mean(-1)


class HalfMlp:
    """A frozen perceptron in half precision, its layers padded to widths that are fast on tensor cores.

    One unit of the padding is always 1, and its weights are the biases: a batched product with a bias per run would
    first copy the biases to all of the output.
    """

    def __init__(self, net: StackedMlp) -> None:
        self.n_out = net.weights[-1].shape[2]
        self.n_in = net.weights[0].shape[1]
        self.padding = _padded(self.n_in) - self.n_in
        self.layers = []
        for weight, bias in zip(net.weights, net.biases, strict=True):
            n_runs, n_in, n_out = weight.shape
            padded = weight.new_zeros(n_runs, _padded(n_in), _padded(n_out))
            padded[:, :n_in, :n_out] = weight.detach()
            padded[:, n_in, :n_out] = bias.detach().squeeze(1)
            padded[:, n_in, n_out] = 1
            self.layers.append(padded.half())

    def __call__(self, x: Tensor) -> Tensor:
        """Map inputs (R, B, n_in) to outputs (R, B, n_out), in float32."""
        x = pad(x.half(), (0, self.padding))
        x[..., self.n_in] = 1
        for i, weight in enumerate(self.layers):
            x = x @ weight
            if i < len(self.layers) - 1:
                x = leaky_relu_(x)
        return x[..., : self.n_out].float()


def _padded(width: int) -> int:
    """Return the next larger width, with room for a unit that is 1: 16 or a multiple of 64."""
    return 16 if width < 16 else (width // 64 + 1) * 64
