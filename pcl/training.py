"""Training as an iterator: `for report in Run(config, seeds): ...`. Stopping early is to stop iterating.

Several seeds train side by side as one batched computation, each with a truth, weights and a report of its own.

Axes: R runs (seeds), B anchors.
"""

import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pcl import Diverged
from pcl.config import RunConfig
from pcl.encoders import KappaRange, MlpEncoder
from pcl.encoders.resnet import NO_IMAGES
from pcl.losses.base import DEFAULT_CHUNK_SIZE
from pcl.randomness import mixed_seed, uniform_inputs
from pcl.schedule import Trained
from pcl.stepping import GraphStepper, PlainStepper, Stepper, TrainingStep
from pcl.tasks import Family, Negatives, ToyTask
from pcl.tasks.base import Metrics
from pcl.tasks.truth import N_PROBES

_FORMAT = 1


@dataclass(frozen=True)
class Report:
    """Where a training stands after an evaluation.

    Attributes:
        batch: Batches trained.
        n_batches: Of how many.
        phase: What was trained last: mu, kappa or joint.
        seconds: Spent training so far, without evaluations.
        by_seed: The metrics of every seed.
        failures: Causes of seeds that have ended early.
    """

    batch: int
    n_batches: int
    phase: str
    seconds: float
    by_seed: dict[int, Metrics]
    failures: dict[int, str]

    @property
    def metrics(self) -> Metrics:
        """The mean over the seeds that have not failed, or over all where all have."""
        chosen = [m for seed, m in self.by_seed.items() if seed not in self.failures] or list(self.by_seed.values())
        return {key: sum(metrics[key] for metrics in chosen) / len(chosen) for key in chosen[0]}


class Run:
    """A training of one configuration for one or several seeds.

    Args:
        config: What to train.
        seeds: One run each, side by side.
        device: Where.
        is_fast: Whether to use CUDA graphs and the fused kernels where there is a CUDA device; the plain path has
            the same statistics.
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
        self._check(seeds)
        toy, mlp = _toy_parts(config)
        self.config, self.seeds = config, tuple(seeds)
        self.device = torch.device(device)
        task = toy.build(self.seeds)
        encoder = mlp.build(toy.dim_x, self.seeds)
        probes = uniform_inputs(self.seeds, "encoder/probes", N_PROBES, toy.dim_x)
        encoder.span_kappa(probes, *_kappa_range(toy, mlp))
        self._assemble(task, encoder, is_fast, chunk_size)
        self._enter_phase()

    @classmethod
    def restore(
        cls,
        path: Path,
        device: str | torch.device = "cpu",
        is_fast: bool = True,
        chunk_size: int = DEFAULT_CHUNK_SIZE,
    ) -> "Run":
        """The training that a checkpoint was taken from, ready to go on.

        Raises:
            ValueError: If the file is not a checkpoint of this program.
        """
        content = _read_checkpoint(path)
        run = cls.__new__(cls)
        run.config = RunConfig.from_flat(content["config"])
        run.seeds = tuple(content["seeds"])
        run.device = torch.device(device)
        toy, mlp = _toy_parts(run.config)
        task = toy.restore(content["task"])
        encoder = mlp.build(toy.dim_x, run.seeds)
        run._assemble(task, encoder, is_fast, chunk_size)
        run._load(content)
        return run

    def __iter__(self) -> Iterator[Report]:
        """Train to the end, with a report at every evaluation.

        Raises:
            Diverged: After the last report, once no run is left whose loss and kappa are finite and in bounds.
        """
        training = self.config.training
        while self.batch < training.n_batches:
            if len(self.failures) == len(self.seeds):
                raise Diverged("; ".join(f"seed {seed}: {cause}" for seed, cause in self.failures.items()))
            self._enter_phase()
            stop = training.next_stop(self.batch)
            while self.batch < stop:  # in slices, so that others can watch `batch`
                n_batches = min(self.stepper.slice_length, stop - self.batch)
                started = time.perf_counter()
                self.stepper.advance(n_batches, training.lr_at(self.batch))
                self.seconds += time.perf_counter() - started
                self.batch += n_batches
            if stop % training.eval_every == 0 or stop == training.n_batches:
                yield self._report()
        if len(self.failures) == len(self.seeds):
            raise Diverged("; ".join(f"seed {seed}: {cause}" for seed, cause in self.failures.items()))

    def save(self, path: Path) -> None:
        """Write a checkpoint in one step: an interrupted write leaves the previous file whole."""
        content = {
            "format": _FORMAT,
            "config": self.config.flat(),
            "seeds": list(self.seeds),
            "batch": self.batch,
            "phase": self.phase,
            "seconds": self.seconds,
            "failures": {str(seed): cause for seed, cause in self.failures.items()},
            "task": self.step.task.state_dict(),
            "stepper": self.stepper.state_dict(),
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        torch.save(content, unfinished)
        unfinished.replace(path)

    def _assemble(self, task: ToyTask, encoder: MlpEncoder, is_fast: bool, chunk_size: int) -> None:
        is_graph = is_fast and self.device.type == "cuda"
        step_type = TrainingStep
        if is_graph:
            from pcl.kernels.fused import FusedStep  # noqa: PLC0415  needs Triton, which only CUDA machines have

            step_type = FusedStep
        self.step = step_type(self.config, task, encoder, self.device, mixed_seed(self.seeds, "training"))
        self.step.set_chunk_size(chunk_size)
        self.stepper: Stepper = GraphStepper(self.step) if is_graph else PlainStepper(self.step)
        self.batch, self.phase, self.seconds = 0, -1, 0.0
        self.failures: dict[int, str] = {}

    def _load(self, content: dict[str, Any]) -> None:
        self.batch, self.seconds = content["batch"], content["seconds"]
        self.failures = {int(seed): cause for seed, cause in content["failures"].items()}
        self.phase = content["phase"]
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
        rate = {"time/ms_per_batch": 1e3 * self.seconds / self.batch, "time/train_s": self.seconds}
        by_seed = {}
        for seed, loss, metrics in zip(self.seeds, losses, judged, strict=True):
            by_seed[seed] = {"train/loss": loss, **metrics, **rate}
            if seed not in self.failures and (cause := self._cause(loss, metrics)):
                self.failures[seed] = f"{cause} at batch {self.batch}"
        n_batches = self.config.training.n_batches
        return Report(self.batch, n_batches, self._trained().value, self.seconds, by_seed, dict(self.failures))

    def _cause(self, loss: float, metrics: Metrics) -> str:
        """Why a run has to end, or nothing."""
        kappa, limit = metrics["eval/kappa_median"], self.config.training.kappa_limit
        if math.isnan(kappa) or math.isnan(metrics["eval/mu_mae"]):
            return "the encoder returns NaN"
        if kappa > limit:
            return f"runaway kappa: its median {kappa:.3g} is beyond training.kappa_limit = {limit:g}"
        return "" if math.isfinite(loss) else f"the loss is {loss}"

    @staticmethod
    def _check(seeds: Sequence[int]) -> None:
        if not seeds or len(set(seeds)) != len(seeds) or not all(0 <= seed < 2**63 for seed in seeds):
            raise ValueError(f"Seeds must be different whole numbers from 0 to 2^63 - 1, but got {list(seeds)}.")


def _toy_parts(config: RunConfig) -> tuple[ToyTask.Config, MlpEncoder.Config]:
    if not isinstance(config.task, ToyTask.Config) or not isinstance(config.encoder, MlpEncoder.Config):
        raise ValueError(NO_IMAGES)
    return config.task, config.encoder


def _kappa_range(task: ToyTask.Config, encoder: MlpEncoder.Config) -> tuple[float, float]:
    is_fixed = encoder.kappa_range is KappaRange.SIXTEEN_TO_32 or task.family is Family.DIRAC
    return (16.0, 32.0) if is_fixed else (task.kappa_min, task.kappa_max)


def check_same_config(path: Path, config: RunConfig, seeds: Sequence[int]) -> None:
    """Raise a ValueError that names the first difference unless a checkpoint is of this configuration and seeds."""
    content = _read_checkpoint(path)
    if tuple(content["seeds"]) != tuple(seeds):
        theirs = content["seeds"]
        raise ValueError(f"The checkpoint {path} is of the seeds {theirs}, not {list(seeds)}; name another file.")
    theirs, ours = content["config"], config.flat()
    for key in ours:
        if theirs.get(key) != ours[key]:
            raise ValueError(
                f"The checkpoint {path} is of another configuration: {key} is {theirs.get(key)} there and {ours[key]} "
                f"here; name another file or change the setting."
            )


def _read_checkpoint(path: Path) -> dict[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"There is no checkpoint {path}.") from None
    except Exception:
        raise ValueError(f"{path} is not a readable checkpoint; it was left as it is.") from None
    if not isinstance(content, dict) or content.get("format") != _FORMAT:
        raise ValueError(f"{path} is not a checkpoint of format {_FORMAT}; it was left as it is.")
    return content
