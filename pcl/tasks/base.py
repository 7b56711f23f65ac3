"""What every task is: a source of contrastive batches, and a judge of encoders, for several runs side by side.

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
    """Where an anchor's negatives come from."""

    DRAWN = "drawn"  # each anchor's own
    SHARED = "shared"  # one set for all anchors of a batch
    # All that the batch's positives were chosen from. The loss in its form for infinitely many negatives is then the
    # exact likelihood of that choice, for any number; with others, the truth is its optimum only for infinitely many.
    POOL = "pool"
    IN_BATCH = "in_batch"  # the positive of another anchor: "M = 0" in the paper's tables

    @property
    def are_common(self) -> bool:
        """Whether all anchors of a batch have the same."""
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
        selects: Metric whose largest value decides which evaluation a run ends with; the last one where there is none.
    """

    split: ClassVar[str] = "eval"
    selects: ClassVar[str] = ""

    @property
    @abstractmethod
    def n_runs(self) -> int:
        """R."""

    @abstractmethod
    def draw(self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator) -> Batch:
        """One batch for every run; nothing in it waits for the device."""

    @abstractmethod
    def evaluate(self, encoder: Encoder) -> list[Metrics]:
        """The metrics of each run."""

    def final(self, encoder: Encoder) -> list[Metrics]:
        """More metrics of each run, which are computed once, at its end, and select nothing."""
        return [{} for _ in range(self.n_runs)]

    @abstractmethod
    def state_dict(self) -> dict[str, Tensor]:
        """What cannot be made again from the configuration."""

    @abstractmethod
    def to(self, device: torch.device) -> "Task":
        """The same task with its tensors elsewhere."""
