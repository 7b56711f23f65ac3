"""Construction of a task and its encoder from a configuration."""

from collections.abc import Sequence

from torch import Tensor

from pcl.config.run_config import RunConfig
from pcl.encoders import Encoder
from pcl.tasks import Task


def assembled(config: RunConfig, seeds: Sequence[int]) -> tuple[Task, Encoder]:
    """Return a new task and encoder, on the CPU."""
    encoder = config.encoder.build_for(config.task.inputs, seeds)
    encoder.begin(config.task.probes(seeds))
    return config.task.build(seeds), encoder


def reassembled(config: RunConfig, seeds: Sequence[int], state: dict[str, Tensor]) -> tuple[Task, Encoder]:
    """Return the task that a state was taken from, and an encoder to load a state into."""
    return config.task.restore(state, seeds), config.encoder.without_weights().build_for(config.task.inputs, seeds)
