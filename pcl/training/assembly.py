"""Construction of a task and its encoder from a configuration."""

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from pcl.config.run_config import RunConfig
from pcl.encoders import Encoder, MlpEncoder, ResNetEncoder
from pcl.mathematics.random_streams import uniform_inputs
from pcl.tasks import CifarTask, Task
from pcl.tasks.truth import N_PROBES


def assembled(config: RunConfig, seeds: Sequence[int]) -> tuple[Task, Encoder]:
    """Return a new task and encoder, on the CPU."""
    if isinstance(config.task, CifarTask.Config):
        assert isinstance(config.encoder, ResNetEncoder.Config)
        return config.task.build(seeds), config.encoder.build(seeds)
    assert isinstance(config.encoder, MlpEncoder.Config)
    toy, mlp = config.task, config.encoder
    encoder = mlp.build(toy.dim_x, seeds)
    encoder.span_kappa(uniform_inputs(seeds, "encoder/probes", N_PROBES, toy.dim_x), *config.first_kappa_range)
    return toy.build(seeds), encoder


def reassembled(config: RunConfig, seeds: Sequence[int], state: dict[str, Tensor]) -> tuple[Task, Encoder]:
    """Return the task that a state was taken from, and an encoder to load a state into."""
    if isinstance(config.task, CifarTask.Config):
        assert isinstance(config.encoder, ResNetEncoder.Config)
        # The state has all weights: the pretrained ones need not exist any more.
        return config.task.build(seeds), replace(config.encoder, weights="").build(seeds)
    assert isinstance(config.encoder, MlpEncoder.Config)
    return config.task.restore(state), config.encoder.build(config.task.dim_x, seeds)
