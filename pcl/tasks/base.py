"""Base of all tasks: a source of contrastive batches and an evaluation of encoders, for several runs side by side.

Axes: R runs, B anchors, N negatives.
"""

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from pcl.encoders import Encoder

Metrics = dict[str, float]


class Negatives(Enum):
    """The source of an anchor's negatives."""

    DRAWN = "drawn"  # each anchor's own
    SHARED = "shared"  # one set for all anchors of a batch
    # All candidates that the batch's positives were chosen from. The loss in its form for infinitely many negatives is
    # then the exact likelihood of that choice, for any number; otherwise, the truth is its optimum only in the limit.
    POOL = "pool"
    IN_BATCH = "in_batch"  # the positive of another anchor: "M = 0" in the paper's tables

    @property
    def are_common(self) -> bool:
        """True if all anchors of a batch have the same negatives."""
        return self in (Negatives.SHARED, Negatives.POOL)


class Batch(NamedTuple):
    """Inputs of one step."""

    anchor: Tensor  # (R, B, ...)
    positive: Tensor  # (R, B, ...)
    negatives: Tensor  # (R, B, N, ...) drawn, (R, 1, N, ...) shared or the pool, N = 0 for in-batch ones


class Task(ABC):
    """Contrastive data for R runs, each with its own truth or split.

    Attributes:
        split: First part of the names of the metrics that `evaluate` returns.
        selects: Metric whose largest value decides which evaluation a run ends with; the last one if it is empty.
    """

    split: ClassVar[str] = "eval"
    selects: ClassVar[str] = ""

    @property
    @abstractmethod
    def n_runs(self) -> int:
        """Number R of runs."""

    @abstractmethod
    def draw(self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator) -> Batch:
        """Draw one batch for every run, without device synchronisation."""

    @abstractmethod
    def evaluate(self, encoder: Encoder) -> list[Metrics]:
        """Return the metrics of each run."""

    def final(self, encoder: Encoder) -> list[Metrics]:
        """Return further metrics of each run, which are computed once, at its end, and select nothing."""
        return [{} for _ in range(self.n_runs)]

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """Return what cannot be rebuilt from the configuration."""

    @abstractmethod
    def to(self, device: torch.device) -> "Task":
        """Move the task's tensors to a device and return the task."""
