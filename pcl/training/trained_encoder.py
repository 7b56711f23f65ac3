"""The trained encoder of an image run, read from its checkpoint: it maps a user's images to posteriors."""

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcl.config.experiments import images_of
from pcl.config.run_config import RunConfig
from pcl.distributions import VonMisesFisher
from pcl.encoders import Encoder
from pcl.tasks import CifarTask
from pcl.tasks.base import Metrics
from pcl.training.checkpoint import read_checkpoint
from pcl.training.run import Run

_BLOCK = 500  # images encoded at once


@dataclass(frozen=True)
class TrainedEncoder:
    """An encoder with the weights of the evaluation that a run has kept, by default its best."""

    config: RunConfig
    task: CifarTask.Config  # the configuration's part about the images
    seed: int
    encoder: Encoder  # of this run alone, for evaluation
    device: torch.device
    best_batch: int  # of that evaluation
    validation: Metrics  # of that evaluation

    @classmethod
    def read(cls, path: Path, seed: int | None = None, device: str | torch.device = "cpu") -> "TrainedEncoder":
        """Read an encoder from a checkpoint, even of an unfinished run; by default of its first seed without a failure.

        Raises:
            ValueError: If the file is not a checkpoint of images, or has no such seed, or no evaluation of it.
        """
        content = read_checkpoint(path)
        config = RunConfig.from_flat(content["config"])
        task = images_of(config.task, f"{path} is of the task {config.task_name!r}")
        run = chosen_run(path, content["seeds"], content["failures"], seed)
        best = content["best"][run]
        if not best["weights"]:
            key = config.experiment.task.selects
            raise ValueError(f"{path} has no evaluation with a finite {key} to take the weights of.")
        encoder = config.encoder.without_weights().build_for(task.inputs, content["seeds"][run : run + 1])
        try:
            encoder.load_run_state(0, best["weights"])
        except RuntimeError:
            raise ValueError(f"{path} has weights that do not fit its configuration.") from None
        place = torch.device(device)
        return cls(
            config, task, content["seeds"][run], encoder.eval().to(place), place, best["batch"], best["metrics"]
        )  # fmt: skip

    @torch.no_grad()
    def encode(self, images: Tensor) -> VonMisesFisher:
        """Return posteriors, on the CPU, of images (N, 3, S, S), bytes or numbers from 0 to 255; S is `task.side`.

        Raises:
            ValueError: If they have another shape, or numbers from 0 to 1.
        """
        if images.ndim != 4 or images.shape[1:] != self.task.inputs.shape:
            shape = ", ".join(map(str, ("N", *self.task.inputs.shape)))
            raise ValueError(f"Images must be of shape ({shape}), but got {tuple(images.shape)}.")
        if images.is_floating_point() and len(images) and 0 < images.max() <= 1:
            raise ValueError("Images must have numbers from 0 to 255, but none is above 1; multiply them by 255.")
        parts = [self.encoder(part.to(self.device).unsqueeze(0)) for part in images.split(_BLOCK)]
        mu, kappa = (torch.cat([getattr(p, name)[0].cpu() for p in parts]) for name in ("mu", "kappa"))
        return VonMisesFisher(mu, kappa, validate_args=False)


@dataclass(frozen=True, eq=False)
class TrainedWeights:
    """One seed's part of an encoder's state, with the run's configuration."""

    config: RunConfig
    seed: int
    weights: dict[str, Tensor]


def trained_weights(path: Path, seed: int | None = None) -> TrainedWeights:
    """Read one seed's weights from a checkpoint of any task: those of the kept evaluation, or else the last.

    Raises:
        ValueError: If the file is not a checkpoint, or has no such seed.
    """
    content = read_checkpoint(path)
    run = chosen_run(path, content["seeds"], content["failures"], seed)
    weights = content["best"][run]["weights"]
    config = RunConfig.from_flat(content["config"])
    if not weights:
        weights = Run.resumed(content, is_fast=False).step.encoder.run_state(run)
    return TrainedWeights(config, content["seeds"][run], dict(weights))


def chosen_run(path: Path, seeds: list[int], failures: Container[str], asked: int | None) -> int:
    """Return the index of a seed in the run; without one, of the first seed that has not failed."""
    if asked is None:
        asked = next((seed for seed in seeds if str(seed) not in failures), seeds[0])
    if asked not in seeds:
        known = ", ".join(map(str, seeds))
        raise ValueError(f"`--seed` must be one of {known}, which {path} has, but got {asked}.")
    return seeds.index(asked)
