"""Training as an iterator: `for report in Run(config, seeds): ...`. To stop early, stop iterating.

Several seeds train side by side as one batched computation, each with a truth, weights and a report of its own.

Axes: R runs (seeds), B anchors.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.config.schedule import Keep, Trained
from pcl.encoders import Encoder, ResNetEncoder
from pcl.losses.base import DEFAULT_CHUNK_SIZE, SampledContrast
from pcl.mathematics.random_streams import check_seeds, mixed_seed
from pcl.metrics import names
from pcl.metrics.undefined import seed_means
from pcl.tasks import Negatives, Task
from pcl.tasks.base import Metrics
from pcl.training.checkpoint import read_checkpoint, write_checkpoint
from pcl.training.diverged import Diverged
from pcl.training.steps.distinct_step import DistinctStep
from pcl.training.steps.stepper import GraphStepper, PlainStepper, Stepper
from pcl.training.steps.training_step import TrainingStep

# Metrics that compare a run's kappa with the truth
_OF_KAPPA = (
    *names.KAPPA_RECOVERY, names.KAPPA_SLOPE, names.KAPPA_INTERCEPT, *names.SPREAD_RECOVERY, *names.SPREAD100_RECOVERY,
    *names.COVERAGE.values(),
)  # fmt: skip


@dataclass(frozen=True)
class Report:
    """Progress of a training after an evaluation."""

    batch: int  # batches trained
    n_batches: int  # batches in all
    phase: str  # what was trained last: mu, kappa or joint
    seconds: float  # time spent training so far, without evaluations
    by_seed: dict[int, Metrics]  # the metrics of every seed
    failures: dict[int, Failure]  # of seeds that have ended early

    @property
    def metrics(self) -> Metrics:
        """Mean over the seeds that have not failed, or over all if all have."""
        return seed_means(self.by_seed, self.failures)


@dataclass(frozen=True)
class Best:
    """The evaluation that a run keeps, usually its best so far, with the encoder's weights."""

    batch: int = 0
    metrics: Metrics = field(default_factory=dict)
    weights: dict[str, Tensor] = field(default_factory=dict)


class Run:
    """A training of one configuration for one or several seeds, with one run each, side by side.

    Args:
        config: The configuration.
        seeds: Seeds.
        device: Device.
        is_fast: Whether to use CUDA graphs and fused kernels on a CUDA device, tables of similarities elsewhere, and to
            encode only once an image that is a negative many times; the plain path has the same statistics.
        chunk_size: Largest number of similarities that the plain losses hold at once; changes memory, not results.

    Example:
        >>> config = RunConfig.of(scale="smoke", profile="paper")
        >>> [report.batch for report in Run(config, seeds=(4,))]
        [4, 8]
    """

    config: RunConfig
    seeds: tuple[int, ...]
    batch: int
    seconds: float

    def __init__(
        self,
        config: RunConfig,
        seeds: Sequence[int],
        device: str | torch.device = "cpu",
        is_fast: bool = True,
        chunk_size: int = DEFAULT_CHUNK_SIZE,
    ) -> None:
        check_seeds(seeds)
        self.config, self.seeds = config, tuple(map(int, seeds))  # NumPy integers would give other random numbers
        self.device = torch.device(device)
        encoder = config.encoder.build_for(config.task.inputs, self.seeds)
        encoder.begin(config.task.probes(self.seeds))
        self._assemble(config.task.build(self.seeds), encoder, is_fast, chunk_size)
        self._enter_phase()

    @classmethod
    def restore(cls, path: Path) -> "Run":
        """Return the training that a checkpoint was taken from, on the CPU; see `read_checkpoint` for errors."""
        return cls.resumed(read_checkpoint(path))

    @classmethod
    def resumed(
        cls,
        content: dict[str, Any],
        device: str | torch.device = "cpu",
        is_fast: bool = True,
        chunk_size: int = DEFAULT_CHUNK_SIZE,
    ) -> "Run":
        """Return the training that `read_checkpoint` has read, ready to continue."""
        run = cls.__new__(cls)
        run.config = RunConfig.from_flat(content["config"])
        run.seeds = tuple(content["seeds"])
        run.device = torch.device(device)
        encoder = run.config.encoder.without_weights().build_for(run.config.task.inputs, run.seeds)
        run._assemble(run.config.task.restore(content["task"], run.seeds), encoder, is_fast, chunk_size)
        run._load(content)
        return run

    def __iter__(self) -> Iterator[Report]:
        """Train to the end, and yield a report at every evaluation.

        Raises:
            Diverged: After the last report, once no run is left whose loss and kappa are finite and in bounds.
        """
        return (moment for moment in self.moments() if moment is not None)

    def moments(self) -> Iterator[Report | None]:
        """Yield the same reports, and None whenever the device has work, so that other trainings can have a turn."""
        training = self.config.training
        while self.batch < training.n_batches:
            if len(self.failures) == len(self.seeds):
                raise Diverged("; ".join(f"seed {seed}: {failure}" for seed, failure in self.failures.items()))
            self._enter_phase()
            stop = training.next_stop(self.batch)
            while self.batch < stop:  # in slices, so that others can watch `batch`
                n_batches = min(self.stepper.slice_length, stop - self.batch)
                started = time.perf_counter()
                self.stepper.start(n_batches, training.lr_at(self.batch))
                yield None
                self.stepper.wait()
                self.seconds += time.perf_counter() - started
                self.batch += n_batches
            if stop % training.eval_every == 0 or stop == training.n_batches:
                yield self._report()
        if len(self.failures) == len(self.seeds):
            raise Diverged("; ".join(f"seed {seed}: {failure}" for seed, failure in self.failures.items()))

    def save(self, path: Path) -> None:
        """Write a checkpoint, atomically."""
        content = {
            "config": self.config.flat(),
            "seeds": list(self.seeds),
            "batch": self.batch,
            "phase": self.phase,
            "seconds": self.seconds,
            "failures": {str(seed): failure.as_json() for seed, failure in self.failures.items()},
            "task": self.step.task.state_dict(),
            "best": [dict(vars(best)) for best in self._best],
            "stepper": self.stepper.state_dict(),
        }
        write_checkpoint(path, content)

    def _assemble(self, task: Task, encoder: Encoder, is_fast: bool, chunk_size: int) -> None:
        is_graph = is_fast and self.device.type == "cuda"
        step_type = self._step_type(task, encoder, is_graph) if is_fast else TrainingStep
        self.step = step_type(self.config, task, encoder, self.device, mixed_seed(self.seeds, "training"))
        self.step.set_chunk_size(chunk_size)
        if is_fast:
            self.step.use_tables()
        self.stepper: Stepper = GraphStepper(self.step) if is_graph else PlainStepper(self.step)
        self.batch, self.phase, self.seconds = 0, -1, 0.0
        self.failures: dict[int, Failure] = {}
        self._best = [Best() for _ in self.seeds]

    def _step_type(self, task: Task, encoder: Encoder, is_graph: bool) -> type[TrainingStep]:
        """Return the fastest kind of step for this training; fused ones need Triton, which only CUDA machines have."""
        training, loss = self.config.training, self.config.loss.fused
        draws = Negatives.DRAWN in map(training.negatives_at, range(len(training.phases)))
        is_counted = draws and DistinctStep.fits(task, encoder, training.batch_size * training.n_negatives)
        if is_graph and type(encoder) is ResNetEncoder:
            from pcl.training.steps import fused_image_step  # noqa: PLC0415  needs Triton

            return fused_image_step.FusedDistinctStep if is_counted else fused_image_step.FusedImageStep
        if is_counted:
            return DistinctStep
        if is_graph and self.config.experiment.is_fused(self.config.encoder):
            from pcl.training.steps.fused_step import FusedStep  # noqa: PLC0415  needs Triton

            return FusedStep
        if is_graph and isinstance(loss, SampledContrast) and loss.is_integrated:
            from pcl.training.steps.integrated_step import IntegratedStep  # noqa: PLC0415  needs Triton

            return IntegratedStep
        return TrainingStep

    def _load(self, content: dict[str, Any]) -> None:
        self.batch, self.seconds = content["batch"], content["seconds"]
        self.failures = {int(seed): Failure.of(failure) for seed, failure in content["failures"].items()}
        self.phase = content["phase"]
        self._best = [Best(**best) for best in content["best"]]
        self.stepper.resume(self._trained(), self._source(), content["stepper"])

    def _enter_phase(self) -> None:
        phase = self.config.training.phase_at(self.batch)
        if phase != self.phase:
            self.phase = phase
            self.stepper.enter(self._trained(), self._source())

    def _trained(self) -> Trained:
        return self.config.training.phases[self.phase].trained

    def _source(self) -> Negatives:
        return self.config.training.negatives_at(self.phase)

    def _report(self) -> Report:
        losses = self.stepper.mean_losses()
        judged = self.step.task.evaluate(self.step.encoder)
        rate = {names.MS_PER_BATCH: 1e3 * self.seconds / self.batch, names.TRAIN_S: self.seconds}
        for run, (seed, loss) in enumerate(zip(self.seeds, losses, strict=True)):
            if seed not in self.failures and (failure := self._failure(loss, judged[run])):
                self.failures[seed] = failure
        if self.step.task.selects:
            judged = self._selected(judged)
        elif not self.config.loss.trains_kappa:  # nothing trains the kappa network: its errors would say nothing
            judged = [{name: value for name, value in m.items() if name not in _OF_KAPPA} for m in judged]
        learned = self.step.learned_numbers()
        by_seed = {
            seed: {names.TRAIN_LOSS: loss, **metrics, **names.of_learned(numbers), **rate}
            for seed, loss, metrics, numbers in zip(self.seeds, losses, judged, learned, strict=True)
        }
        n_batches = self.config.training.n_batches
        return Report(self.batch, n_batches, self._trained().value, self.seconds, by_seed, dict(self.failures))

    def _selected(self, judged: list[Metrics]) -> list[Metrics]:
        """Remember each run's best evaluation; the last report is of that one, with the final metrics of both.

        With `training.keep=last`, the last counts as the best, even if the metric that selects is undefined for it.
        """
        encoder, key = self.step.encoder, self.step.task.selects
        keeps_last = self.config.training.keep is Keep.LAST
        for run, (best, metrics) in enumerate(zip(self._best, judged, strict=True)):
            if keeps_last or metrics[key] > best.metrics.get(key, -math.inf):
                self._best[run] = Best(self.batch, metrics, encoder.run_state(run))
        if self.batch < self.config.training.n_batches:
            return judged
        at_end = self.step.task.final(encoder)
        now = [encoder.run_state(run) for run in range(len(self.seeds))]
        for run, best in enumerate(self._best):
            encoder.load_run_state(run, best.weights or now[run])
        final = self.step.task.final(encoder)
        for run, weights in enumerate(now):
            encoder.load_run_state(run, weights)
        return [
            {**(best.metrics or metrics), **of_best, **_renamed(of_last), names.BEST_BATCH: float(best.batch)}
            for best, metrics, of_best, of_last in zip(self._best, judged, final, at_end, strict=True)
        ]

    def _failure(self, loss: float, metrics: Metrics) -> Failure | None:
        """Return why a run has to end, if it has to."""
        at = f"at batch {self.batch}"
        kappa, limit = metrics[f"{self.step.task.split}/kappa_median"], self.config.training.kappa_limit
        if math.isnan(kappa) or math.isnan(metrics.get(names.MU_MAE, 0.0)):
            return Failure(FailureKind.NAN, at)
        if kappa > limit:
            told = f"its median {kappa:.3g} is beyond training.kappa_limit = {limit:g} {at}"
            return Failure(FailureKind.RUNAWAY_KAPPA, told)
        return None if math.isfinite(loss) else Failure(FailureKind.LOSS_NOT_FINITE, f"{loss} {at}")


def _renamed(of_last: Metrics) -> Metrics:
    """Return final metrics of the last batch's weights under names of their own."""
    return {names.LAST[name]: value for name, value in of_last.items() if name in names.LAST}
