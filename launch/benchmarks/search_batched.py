"""Configurations of MCInfoNCE that differ in numbers alone, trained as one batch like seeds: for the search benchmark.

Runs that agree in every shape are one batched computation, each with a kappa_pos, learned or not, and a learning rate
of its own. Truths and initial weights are those that `pcl.training.run.Run` has for the same seeds; the noise of
training is another draw, so that studies do not train like this (see `pcl.training.interleaving`). It is the plain
step, in a CUDA graph where there is a device.

Axes: R runs, all seeds of the first configuration first; S samples, B anchors, N negatives.
"""

import copy
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from pcl.config.run_config import RunConfig
from pcl.distributions import VonMisesFisher
from pcl.encoders import Encoder
from pcl.losses.base import SampledContrast, Triple, contrastive_log_ratio, over_samples
from pcl.mathematics.random_streams import mixed_seed
from pcl.tasks import Negatives, ToyTask
from pcl.tasks.judging import kappa_metrics
from pcl.training.assembly import assembled
from pcl.training.step import TrainingStep, merged
from pcl.training.stepper import GraphStepper, PlainStepper, Stepper

T = TypeVar("T")
M = TypeVar("M", bound=nn.Module)

_CHUNK = 2**30  # similarities at once, on a GPU: a group of the benchmark has ten million and takes a few GB


@dataclass(frozen=True)
class Moment:
    """Where configurations stand after an evaluation.

    Attributes:
        batch: Batches trained.
        seconds: Spent training so far, without evaluations, by all of them.
        kappa_rank_corr: Of every configuration and seed.
        has_failed: Whether the same have a loss, or a kappa, that is no number or out of bounds.
    """

    batch: int
    seconds: float
    kappa_rank_corr: list[list[float]]
    has_failed: list[list[bool]]


def shape_of(config: RunConfig) -> RunConfig:
    """The same for all that can be trained side by side."""
    return config.with_values({"loss.kappa_pos": 1.0, "loss.learn_kappa_pos": False, "training.lr": 1.0})


def _contrast(config: RunConfig) -> SampledContrast:
    contrast = config.loss.fused
    assert contrast is not None, "only MCInfoNCE trains side by side"
    return contrast


def train(configs: Sequence[RunConfig], seeds: Sequence[int], device: torch.device) -> Iterator[Moment]:
    """Train configurations of one shape to the end, with a moment at every evaluation."""
    common = shape_of(configs[0])
    assert all(shape_of(config) == common for config in configs)
    step = step_of(configs, seeds, device)
    stepper: Stepper = _GraphStepper(step) if device.type == "cuda" else _PlainStepper(step)
    training, batch, phase, seconds = common.training, 0, -1, 0.0
    while batch < training.n_batches:
        if training.phase_at(batch) != phase:
            phase = training.phase_at(batch)
            stepper.enter(training.phases[phase].trained, training.negatives_at(phase))
        stop = training.next_stop(batch)
        started = time.perf_counter()
        stepper.advance(stop - batch, training.lr_at(batch))
        seconds += time.perf_counter() - started
        batch = stop
        if batch % training.eval_every == 0 or batch == training.n_batches:
            yield _moment(step, stepper, batch, seconds, len(seeds))


def _moment(step: "SideBySideStep", stepper: Stepper, batch: int, seconds: float, n_seeds: int) -> Moment:
    task = step.task
    with torch.no_grad():
        kappa = step.encoder(task.x_eval).kappa
    limit = step.config.training.kappa_limit
    judged = [kappa_metrics(kappa[run], task.kappa_true[run]) for run in range(task.n_runs)]
    has_failed = [
        not (math.isfinite(loss) and metrics["eval/kappa_median"] <= limit)
        for loss, metrics in zip(stepper.mean_losses(), judged, strict=True)
    ]
    corrs = [metrics["eval/kappa_rank_corr"] for metrics in judged]
    return Moment(batch, seconds, _by_cell(corrs, n_seeds), _by_cell(has_failed, n_seeds))


def _by_cell(values: list[T], n_seeds: int) -> list[list[T]]:
    return [values[i : i + n_seeds] for i in range(0, len(values), n_seeds)]


class KappaPosOfRuns(nn.Module):
    """A kappa_pos for each run: where it is learned, its initial value times e^f with the parameter f."""

    initial: Tensor
    is_learned: Tensor

    def __init__(self, initial: Tensor, is_learned: Tensor) -> None:
        super().__init__()
        self.register_buffer("initial", initial)
        self.register_buffer("is_learned", is_learned.to(initial))
        self.log_factor = nn.Parameter(torch.zeros_like(initial))

    def forward(self) -> Tensor:
        """(R,)."""
        return self.initial * (self.is_learned * self.log_factor).exp()


class SideBySideStep(TrainingStep):
    """A step of runs that have a kappa_pos and a learning rate each.

    Args:
        config: What they have in common.
        task: Of all runs.
        encoder: Of all runs.
        device: Where.
        seed: Of everything random in training.
        kappa_pos: Of every run.
        rates: The first learning rate of every run, (R,); the config's is 1.
    """

    task: ToyTask

    def __init__(
        self, config: RunConfig, task: ToyTask, encoder: Encoder, device: torch.device, seed: int,
        kappa_pos: KappaPosOfRuns, rates: Tensor,
    ) -> None:  # fmt: skip
        self._kappa_pos = kappa_pos
        self.rates = rates.to(device)
        super().__init__(config, task, encoder, device, seed)

    def losses_of(self, anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher) -> Tensor:
        """Mean loss of each run, (R,)."""
        config = _contrast(self.config)
        n_runs, batch_size = anchor.batch_shape
        triple = Triple(*(merged(d) for d in (anchor, positive, negatives)))
        kappa_pos = self._kappa_pos().unsqueeze(1).expand(n_runs, batch_size).reshape(-1)
        weight = config.positive_weight.of(triple.n_negatives)

        def reduce_chunk(positive_cosines: Tensor, negative_cosines: Tensor) -> tuple[Tensor]:
            similarities = kappa_pos * positive_cosines, kappa_pos.unsqueeze(1) * negative_cosines
            return (contrastive_log_ratio(*similarities, weight),)

        chunks = over_samples(reduce_chunk, triple, config.n_samples, _CHUNK, self.generator)
        log_ratio = torch.cat([log_ratio for (log_ratio,) in chunks])
        losses = math.log(config.n_samples) - torch.logsumexp(log_ratio, dim=0)
        return losses.view(n_runs, batch_size).mean(-1)

    def _expect(self, source: Negatives) -> None:
        """Nothing: its loss treats all negatives alike."""

    def _losses(self) -> nn.ModuleList:
        return nn.ModuleList([self._kappa_pos]).to(self.device)


def step_of(configs: Sequence[RunConfig], seeds: Sequence[int], device: torch.device) -> SideBySideStep:
    """The step of configurations of one shape, for every seed."""
    common = shape_of(configs[0])
    task, encoder = assembled(common, seeds)
    losses = [_contrast(config) for config in configs for _ in seeds]
    rates = torch.tensor([config.training.lr for config in configs for _ in seeds])
    kappas = [loss.kappa_pos for loss in losses]
    are_learned = [loss.is_learned for loss in losses]
    kappa_pos = KappaPosOfRuns(torch.tensor(kappas), torch.tensor(are_learned))
    seed = mixed_seed(tuple(seeds), "side by side", common.fingerprint())
    tasks = _tiled_task(cast(ToyTask, task), len(configs))
    return SideBySideStep(common, tasks, _tiled(encoder, len(configs)), device, seed, kappa_pos, rates)


def _tiled(module: M, times: int) -> M:
    """All runs of a module, so many times."""
    for tensor in itertools.chain(module.parameters(), module.buffers()):
        tensor.data = _repeated(tensor.data, times)
    return module


def _tiled_task(task: ToyTask, times: int) -> ToyTask:
    tiled = copy.copy(task)
    tiled.truth = _tiled(copy.deepcopy(task.truth), times)
    for name in ("x_eval", "mu_true", "kappa_true", "spread_true"):
        setattr(tiled, name, _repeated(getattr(task, name), times))
    return tiled


def _repeated(tensor: Tensor, times: int) -> Tensor:
    return tensor.repeat(times, *(1 for _ in tensor.shape[1:]))


class RunwiseAdam(torch.optim.Optimizer):
    """Adam with torch's defaults and a factor of the learning rate for each run; can be captured.

    Args:
        parameters: (R, ...).
        rates: (R,).
        lr: By which all rates are multiplied.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], rates: Tensor, lr: float | Tensor) -> None:
        super().__init__(parameters, {"lr": lr})
        self._rates, self._n_steps = rates, torch.zeros((), device=rates.device)
        self._moments = [(torch.zeros_like(p), torch.zeros_like(p)) for p in parameters]

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One step of all parameters."""
        (group,) = self.param_groups
        self._n_steps += 1
        scale = group["lr"] * self._rates / (1 - 0.9**self._n_steps)
        correction = (1 - 0.999**self._n_steps).sqrt()
        for parameter, (mean, square) in zip(group["params"], self._moments, strict=True):
            mean.lerp_(parameter.grad, 0.1)
            square.mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
            root = square.sqrt().div_(correction).add_(1e-8)
            parameter.sub_(mean.div(root).mul_(scale.view(-1, *(1 for _ in parameter.shape[1:]))))


class _RunwiseRates:
    """A stepper whose optimiser has a rate for each run."""

    step: SideBySideStep

    def _fresh(self, parameters: list[nn.Parameter], lr: float | Tensor, is_captured: bool) -> torch.optim.Optimizer:
        return RunwiseAdam(parameters, self.step.rates, lr)


class _PlainStepper(_RunwiseRates, PlainStepper):  # type: ignore[misc]
    """One step after the other."""


class _GraphStepper(_RunwiseRates, GraphStepper):  # type: ignore[misc]
    """Captured and replayed."""
