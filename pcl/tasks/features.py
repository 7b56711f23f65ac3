"""Labelled features, such as those of a frozen network: pairs by labels; kappa is compared with annotators.

Axes: R runs, N items, F features, B anchors, C classes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from pcl.data.arrays import FeatureSet, read_features
from pcl.data.folds import N_FOLDS, split
from pcl.encoders import Encoder, Inputs
from pcl.metrics.names import VAL_RECALL
from pcl.metrics.uncertainty import entropy
from pcl.tasks.base import Batch, Metrics, Negatives, Task, TaskConfig
from pcl.tasks.labelled import check_folds, check_size, encoded, has_entropy, label_metrics

_N_PROBES = 500  # items over which kappa gets its first range


class _Part:
    """Items with their P(C|x)."""

    def __init__(self, data: FeatureSet, chosen: Tensor) -> None:
        self.features, self.shares = data.features[chosen], data.soft_labels[chosen]

    def to(self, device: torch.device) -> None:
        """Move its tensors to a device."""
        self.features, self.shares = self.features.to(device), self.shares.to(device)

    def draw(self, batch_size: int, n_negatives: int, generator: torch.Generator) -> Batch:
        """Draw anchors uniformly, positives by P(c|x+) with c from P(C|x), and negatives by 1 - P(c|x-)."""
        anchor = torch.randint(len(self.features), (batch_size,), device=generator.device, generator=generator)
        classes = torch.multinomial(self.shares[anchor], 1, generator=generator).squeeze(1)
        by_class = self.shares.T[classes]
        positive = torch.multinomial(by_class, 1, generator=generator).squeeze(1)
        negatives = anchor.new_empty(batch_size, 0)
        if n_negatives:
            negatives = torch.multinomial(
                (1 - by_class).clamp(min=0), n_negatives, replacement=True, generator=generator
            )
        return Batch(*(self.features[places] for places in (anchor, positive, negatives)))


@final
class FeatureTask(Task):
    """Labelled features in five folds: fold f trains on sets f, f + 1 and f + 2, validates on f + 3, tests on f + 4."""

    split = "val"
    selects = VAL_RECALL

    @dataclass(frozen=True)
    class Config(TaskConfig):
        """Settings of the task."""

        data: str = ""  # an .npz with the arrays features and labels, and maybe probs and classes
        n_features: int = 512  # number F of columns
        fold: int = 0  # number of the fold, of five; a run has this one plus its seed, modulo five
        n_eval: int = 2_000  # largest number of items for validation, and for the test; the first of their set

        def __post_init__(self) -> None:
            if self.n_features < 1:
                raise ValueError(f"`task.n_features >= 1` must hold, but got {self.n_features}.")
            check_folds(self.fold, self.n_eval)

        @property
        def inputs(self) -> Inputs:
            return Inputs((self.n_features,))

        def check_negatives(self, sources: Collection[Negatives]) -> None:
            if any(source.are_common for source in sources):
                raise ValueError(
                    "With features, each anchor has negatives of its own, by class, as under paper and reference; "
                    "they cannot be shared."
                )

        def build(self, seeds: Sequence[int]) -> "FeatureTask":
            return FeatureTask(self, self._read(), seeds)

        def probes(self, seeds: Sequence[int]) -> Tensor:
            return self._read().features[:_N_PROBES].expand(len(seeds), -1, -1)

        def _read(self) -> FeatureSet:
            data = read_features(self.data)
            if data.features.shape[1] != self.n_features:
                n = data.features.shape[1]
                raise ValueError(f"`task.n_features` must be that of {self.data}, {n}, but got {self.n_features}.")
            return data

    def __init__(self, config: Config, data: FeatureSet, seeds: Sequence[int]) -> None:
        check_size(data.name, len(data.features), "rows")
        self.config = config
        self._has_entropy = has_entropy(data.soft_labels)
        splits = [split(len(data.features), (config.fold + seed) % N_FOLDS) for seed in seeds]
        self.train = [_Part(data, parts.train) for parts in splits]
        if any(((1 - part.shares).clamp(min=0).sum(0) == 0).any() for part in self.train):
            raise ValueError(f"{data.name!r} must have two classes in every training part, but one part has only one.")
        self.validation = [_Part(data, parts.validation[: config.n_eval]) for parts in splits]
        self.test = [_Part(data, parts.test[: config.n_eval]) for parts in splits]

    @property
    def n_runs(self) -> int:
        return len(self.train)

    def to(self, device: torch.device) -> "FeatureTask":
        for part in (*self.train, *self.validation, *self.test):
            part.to(device)
        return self

    def draw(self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator) -> Batch:
        n = n_negatives if source is Negatives.DRAWN else 0
        batches = [part.draw(batch_size, n, generator) for part in self.train]
        return Batch(*(torch.stack(parts) for parts in zip(*batches, strict=True)))

    def evaluate(self, encoder: Encoder) -> list[Metrics]:
        return self._metrics(encoder, self.validation, "val")

    def final(self, encoder: Encoder) -> list[Metrics]:
        """Return test metrics of each run; a training ends with those of its best and of its last weights."""
        return self._metrics(encoder, self.test, "test")

    def _metrics(self, encoder: Encoder, by_run: list[_Part], name: str) -> list[Metrics]:
        posteriors = encoded(encoder, [part.features for part in by_run], block=self.config.n_eval)
        return [
            label_metrics(name, *found, part.shares.argmax(1), entropy(part.shares) if self._has_entropy else None)
            for part, found in zip(by_run, posteriors, strict=True)
        ]
