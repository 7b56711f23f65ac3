"""Labelled features, such as those of a frozen network: pairs by labels; kappa is compared with annotators.

Axes: R runs, N things, F features, B anchors, C classes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor

from pcl.data.arrays import FeatureSet, read_features
from pcl.data.folds import N_FOLDS, split
from pcl.encoders import Encoder, Inputs
from pcl.metrics.names import TEST, VAL, VAL_RECALL
from pcl.metrics.retrieval import recall_at_1
from pcl.metrics.uncertainty import entropy, rank_corr_with_uncertainty
from pcl.tasks.base import Batch, Metrics, Negatives, Task, TaskConfig

_LEAST_JUDGED = 3  # fewest things with meaningful ranks
_N_PROBES = 500  # things over which kappa gets its first range


class _Part:
    """Things with their P(C|x)."""

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
        n_eval: int = 2_000  # largest number of things for validation, and for the test; the first of their set

        def __post_init__(self) -> None:
            if self.n_features < 1:
                raise ValueError(f"`task.n_features >= 1` must hold, but got {self.n_features}.")
            if not 0 <= self.fold < N_FOLDS:
                raise ValueError(f"`0 <= task.fold <= {N_FOLDS - 1}` must hold, but got {self.fold}.")
            if self.n_eval < _LEAST_JUDGED:
                raise ValueError(f"`task.n_eval >= {_LEAST_JUDGED}` must hold, but got {self.n_eval}.")

        @property
        def inputs(self) -> Inputs:
            return Inputs((self.n_features,))

        def check_negatives(self, sources: Collection[Negatives]) -> None:
            if any(source.are_common for source in sources):
                raise ValueError(
                    "Features have negatives of an anchor's own, by its class, as under paper and reference: "
                    "none are shared."
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
        if len(data.features) < N_FOLDS * _LEAST_JUDGED:
            raise ValueError(
                f"{data.name!r} must have at least {N_FOLDS * _LEAST_JUDGED} rows, {_LEAST_JUDGED} for each of "
                f"{N_FOLDS} folds, but has {len(data.features)}."
            )
        self.config = config
        spread = entropy(data.soft_labels)
        self._has_entropy = bool(spread.min() < spread.max())  # else metrics of it are undefined
        splits = [split(len(data.features), (config.fold + seed) % N_FOLDS) for seed in seeds]
        self.train = [_Part(data, parts.train) for parts in splits]
        if any(((1 - part.shares).clamp(min=0).sum(0) == 0).any() for part in self.train):
            raise ValueError(f"{data.name!r} must have rows of two classes in every training part, but one has one.")
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
        """Return test metrics of each run; compute them once, with the weights that validation has chosen."""
        return self._metrics(encoder, self.test, "test")

    @torch.no_grad()
    def _metrics(self, encoder: Encoder, by_run: list[_Part], name: str) -> list[Metrics]:
        _, of_entropy, recall = VAL if name == "val" else TEST
        n = max(len(part.features) for part in by_run)  # runs side by side: those with fewer repeat their last
        x = torch.stack([part.features[torch.arange(n).clamp(max=len(part.features) - 1)] for part in by_run])
        was_training = encoder.training
        encoder.eval()
        try:
            posterior = encoder(x)
        finally:
            encoder.train(was_training)
        found = []
        for run, part in enumerate(by_run):
            mu, kappa = (values[run, : len(part.features)] for values in (posterior.mu, posterior.kappa))
            metrics = {recall: recall_at_1(mu, part.shares.argmax(1))}
            if self._has_entropy:
                metrics[of_entropy] = rank_corr_with_uncertainty(kappa, entropy(part.shares))
            metrics |= {f"{name}/kappa_mean": kappa.mean().item(), f"{name}/kappa_median": kappa.median().item()}
            found.append(metrics)
        return found
