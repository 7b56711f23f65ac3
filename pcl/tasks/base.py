"""Base of all tasks: a source of contrastive batches and an evaluation of encoders, for several runs side by side.

Axes: R runs, B anchors, N negatives.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pcl.data.images import ImageSet
from pcl.encoders import Encoder, Inputs
from pcl.losses.base import ADDED_LATER, Negatives

__all__ = ["ADDED_LATER", "Batch", "ChoiceBatch", "Metrics", "Negatives", "Task", "TaskConfig", "Truths"]

Metrics = dict[str, float]


class Batch(NamedTuple):
    """Inputs of one step."""

    anchor: Tensor  # (R, B, ...)
    positive: Tensor  # (R, B, ...)
    negatives: Tensor  # (R, B, N, ...) drawn, (R, 1, N, ...) shared or the pool, N = 0 for in-batch ones


class PooledBatch(NamedTuple):
    """Inputs of one step whose negatives are among few inputs."""

    anchor: Tensor  # (R, B, ...)
    positive: Tensor  # (R, B, ...)
    pool: Tensor  # (R, P, ...), all inputs that can be negatives
    negatives: Tensor  # (R, B, N), places in the pool, int64


class ChoiceBatch(NamedTuple):
    """Inputs of one step whose positives are chosen among candidates that all anchors share."""

    anchor: Tensor  # (R, B, ...)
    candidates: Tensor  # (R, N, ...)
    chosen: Tensor  # (R, B), places of the positives among them, int64


class Truths(NamedTuple):
    """Inputs that encoders are judged on, with their true posteriors."""

    x: Tensor  # (R, n, ...)
    mu: Tensor  # (R, n, D)
    kappa: Tensor  # (R, n), infinite for points
    z: Tensor | None = None  # (R, n, D), a latent of each


class TaskConfig(ABC):
    """Settings of a task: the base of a frozen dataclass `Config` inside it, whose fields are plain values or enums."""

    @property
    @abstractmethod
    def inputs(self) -> Inputs:
        """Return what encoders need to know about the inputs."""

    @abstractmethod
    def build(self, seeds: Sequence[int]) -> "Task":
        """Return the task of these seeds, on the CPU."""

    def restore(self, state: dict[str, Tensor], seeds: Sequence[int]) -> "Task":
        """Return the task that `Task.state_dict` was taken from; by default a new one, as there is no state."""
        return self.build(seeds)

    def probes(self, seeds: Sequence[int]) -> Tensor:
        """Return the inputs that new encoders are prepared with, (R, n, ...); by default none."""
        return torch.empty(len(seeds), 0, *self.inputs.shape)

    def check_negatives(self, sources: Collection[Negatives]) -> None:  # noqa: B027  some have all
        """Raise a ValueError unless the task has negatives from these sources."""

    def constant_kappa_mae(self, seeds: Sequence[int]) -> float | None:
        """Return the smallest kappa MAE that one kappa for all inputs reaches; None if no finite kappa is known."""
        return None

    def check_images(self, images: ImageSet) -> None:
        """Raise a ValueError unless the task can work on these images."""
        raise ValueError(f"The task of `{type(self).__qualname__}` has no images.")


class Task(ABC):
    """Contrastive data for R runs, each with its own truth or split.

    A task has its settings in a class `Config`, see `TaskConfig`.
    """

    Config: ClassVar[type[TaskConfig]]
    # First part of the names of the metrics that `evaluate` returns; SPLIT/kappa_median must be among them.
    split: ClassVar[str] = "eval"
    # Metric whose largest value decides which evaluation a run ends with, unless it keeps the last one; if empty, runs
    # end with the last one.
    selects: ClassVar[str] = ""

    @property
    @abstractmethod
    def n_runs(self) -> int:
        """Number R of runs."""

    @abstractmethod
    def draw(self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator) -> Batch:
        """Draw one batch for every run, without device synchronisation."""

    def draw_choices(self, batch_size: int, n_candidates: int, generator: torch.Generator) -> ChoiceBatch | None:
        """Draw the batch that `draw` returns for negatives from the pool, but with each candidate once.

        By default None: use `draw`.
        """
        return None

    @abstractmethod
    def evaluate(self, encoder: Encoder) -> list[Metrics]:
        """Return the metrics of each run."""

    def final(self, encoder: Encoder) -> list[Metrics]:
        """Return further metrics of each run, computed at its end and not used for selection."""
        return [{} for _ in range(self.n_runs)]

    def truths(self) -> Truths | None:
        """Return the inputs that encoders are judged on, with their true posteriors; None if these are unknown."""
        return None

    def truth_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return modes and concentrations of the true von Mises-Fisher posteriors of inputs.

        Raises:
            ValueError: Where they are unknown, or of another kind.
        """
        raise ValueError("This task has no known truth.")

    def state_dict(self) -> dict[str, Tensor]:
        """Return the state that the configuration cannot reproduce; by default none."""
        return {}

    @abstractmethod
    def to(self, device: torch.device) -> "Task":
        """Move the task's tensors to a device and return the task."""
