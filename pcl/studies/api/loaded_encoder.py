"""The trained encoder of a checkpoint, whatever the task: from inputs to posteriors."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from pcl.config.run_config import RunConfig
from pcl.distributions import VonMisesFisher
from pcl.training.checkpoint import read_checkpoint
from pcl.training.run import Run
from pcl.training.trained_encoder import TrainedEncoder, chosen_run


@dataclass(frozen=True)
class LoadedEncoder:
    """A trained encoder of one seed; call it with inputs."""

    config: RunConfig
    seed: int
    encode: Callable[[Tensor], VonMisesFisher]  # posteriors of inputs (N, ...), without a gradient and on the CPU

    def __call__(self, x: Tensor) -> VonMisesFisher:
        """Return the posteriors of inputs: (N, dim_x) of the toy task; images (N, 3, S, S), from 0 to 255."""
        return self.encode(x)


def load_encoder(path: str | Path, seed: int | None = None, device: str | torch.device = "cpu") -> LoadedEncoder:
    """Return the trained encoder of a checkpoint.

    For a task that selects its best evaluation, such as images, the weights are those of the evaluation that the run
    kept; otherwise they are the last ones.

    Args:
        path: The file, such as STORAGE/STUDY/trials/KEY/checkpoint.pt.
        seed: Seed of the run; by default the first that has not failed.
        device: Where to compute.

    Raises:
        ValueError: If the file is not a checkpoint, or has no such seed.
    """
    content = read_checkpoint(Path(path))
    run_index = chosen_run(Path(path), content["seeds"], content["failures"], seed)
    if RunConfig.from_flat(content["config"]).experiment.has_images:
        trained = TrainedEncoder.read(Path(path), content["seeds"][run_index], device)
        return LoadedEncoder(trained.config, trained.seed, trained.encode)
    config, best = RunConfig.from_flat(content["config"]), content["best"][run_index]["weights"]
    if config.experiment.has_features and best:
        return _without_task(config, content["seeds"][run_index], best, device)
    run = Run.resumed(content, device, is_fast=False)
    encoder = run.step.encoder.eval()
    if best:
        encoder.load_run_state(run_index, best)

    @torch.no_grad()
    def encode(x: Tensor) -> VonMisesFisher:
        posterior = encoder(x.to(device).expand(len(run.seeds), *x.shape))
        mu, kappa = (values[run_index].cpu() for values in (posterior.mu, posterior.kappa))
        return VonMisesFisher(mu, kappa, validate_args=False)

    return LoadedEncoder(run.config, run.seeds[run_index], encode)


def _without_task(
    config: RunConfig, seed: int, weights: dict[str, Tensor], device: str | torch.device
) -> LoadedEncoder:
    """Return an encoder with these weights; the file of its features need not exist."""
    encoder = config.encoder.without_weights().build_for(config.task.inputs, [seed])
    encoder.load_run_state(0, weights)
    encoder.eval().to(device)

    @torch.no_grad()
    def encode(x: Tensor) -> VonMisesFisher:
        posterior = encoder(x.to(device).unsqueeze(0))
        return VonMisesFisher(posterior.mu[0].cpu(), posterior.kappa[0].cpu(), validate_args=False)

    return LoadedEncoder(config, seed, encode)
