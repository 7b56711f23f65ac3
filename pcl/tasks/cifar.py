"""The CIFAR-10H experiment: pairs by labels, kappa judged by crops and annotators.

The same for any set of images with labels: see `pcl.data`. Images stay on the device as bytes.

Axes: R runs, N images, B anchors, C classes.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import NamedTuple, final

import torch
from torch import Tensor

from pcl.data.folds import N_FOLDS, split
from pcl.data.images import ImageSet
from pcl.data.sources import resolve
from pcl.encoders import Encoder
from pcl.metrics.crops import centre_crop_and_resize, draw_fractions
from pcl.metrics.retrieval import recall_at_1
from pcl.metrics.uncertainty import crop_rank_corr, entropy, rank_corr_with_uncertainty
from pcl.randomness import mixed_seed
from pcl.tasks.base import Batch, Metrics, Negatives, Task

_BLOCK = 500  # images that are encoded at once


class Labels(Enum):
    """Which images train, and by which P(C|x) their pairs are drawn."""

    SOFT = "soft"  # three folds of CIFAR-10H, the annotators' shares
    HARD = "hard"  # the same images, the most voted class
    CIFAR10_HARD = "cifar10_hard"  # the 50,000 training images of CIFAR-10


class NegativeWeights(Enum):
    """How likely an image is to be drawn as a negative of an anchor, whose positive is of the class c."""

    NOT_OF_CLASS = "not_of_class"  # 1 - P(c|x), as the paper writes it
    UNLIKE_ANCHOR = "unlike_anchor"  # 1 - sum_c P(c|x) P(c|anchor), as the released code computes it


class NegativePool(Enum):
    """Which images can be negatives."""

    ALL = "all"
    FIRST_256 = "first_256"  # the release keeps their numbers in eight bits


class _Judged(NamedTuple):
    """Images that an encoder is judged on, (n, 3, 32, 32), with labels and the entropy of the annotators' shares."""

    images: Tensor
    labels: Tensor
    entropy: Tensor
    crops: Tensor
    kept: Tensor  # side of the crop over that of the image


@final
class CifarTask(Task):
    """Fold f trains on the sets f, f + 1 and f + 2, validates on f + 3 and tests on f + 4, modulo five.

    Args:
        config: Settings.
        data: The images.
        n_runs: R; all have the same folds.
    """

    split = "val"
    selects = "val/crop_rank_corr"

    @dataclass(frozen=True)
    class Config:
        """Settings of the task.

        Attributes:
            data: Which images: auto, cifar10h, embedded, or a folder or file; see `pcl.data.sources.resolve`.
            labels: Which images train, and by which labels.
            fold: Of the five.
            n_eval: Most images that encoders are judged on, of those for validation and as many for the test.
            negative_weights: Which images are likely negatives.
            negative_pool: Which can be.
        """

        data: str = "auto"
        labels: Labels = Labels.SOFT
        fold: int = 0
        n_eval: int = 2_000
        negative_weights: NegativeWeights = NegativeWeights.NOT_OF_CLASS
        negative_pool: NegativePool = NegativePool.ALL

        def __post_init__(self) -> None:
            if not 0 <= self.fold < N_FOLDS:
                raise ValueError(f"`0 <= task.fold <= {N_FOLDS - 1}` must hold, but got {self.fold}.")
            if self.n_eval < 3:
                raise ValueError(f"`task.n_eval >= 3` must hold, but got {self.n_eval}.")

        def build(self, seeds: Sequence[int]) -> "CifarTask":
            """The task on the CPU; the seeds only say how many runs there are."""
            return CifarTask(self, resolve(self.data, data_folder()), len(seeds))

    def __init__(self, config: Config, data: ImageSet, n_runs: int) -> None:
        self.config, self._n_runs = config, n_runs
        parts = split(len(data.images), config.fold)
        self.images, shares = _training_part(config, data, parts.train)
        n_pool = min(len(self.images), 256) if config.negative_pool is NegativePool.FIRST_256 else len(self.images)
        # Class by class, the cumulative weights of all images: a draw is one search.
        self.shares = shares
        self.class_of = shares.double().cumsum(1)
        self.positives = shares.double().T.contiguous().cumsum(1)
        self.negatives = (1 - shares[:n_pool].double()).T.contiguous().cumsum(1)
        self.validation = _judged(data, parts.validation[: config.n_eval], f"crops/val/{config.fold}")
        self.test = _judged(data, parts.test[: config.n_eval], f"crops/test/{config.fold}")

    @property
    def n_runs(self) -> int:
        """R."""
        return self._n_runs

    def state_dict(self) -> dict[str, Tensor]:
        """Nothing: images are read again."""
        return {}

    def to(self, device: torch.device) -> "CifarTask":
        """The same task with its tensors elsewhere."""
        for name in ("images", "shares", "class_of", "positives", "negatives"):
            setattr(self, name, getattr(self, name).to(device))
        for name in ("validation", "test"):
            setattr(self, name, _Judged(*(tensor.to(device) for tensor in getattr(self, name))))
        return self

    def draw(self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator) -> Batch:
        """One batch for every run: anchors uniform, the class c of P(C|x), the positive by P(c|x+)."""
        shape = (self.n_runs, batch_size)
        anchor = torch.randint(len(self.images), shape, device=generator.device, generator=generator)
        chosen = _search(self.class_of[anchor], (*shape, 1), generator).squeeze(-1)
        positive = _search(self.positives[chosen], (*shape, 1), generator).squeeze(-1)
        n = n_negatives if source is Negatives.DRAWN else 0
        if self.config.negative_weights is NegativeWeights.UNLIKE_ANCHOR:
            unlike = 1 - self.shares[anchor] @ self.shares[: self.negatives.shape[1]].T
            cumulative = unlike.double().cumsum(-1)
        else:
            cumulative = self.negatives[chosen]
        negative = _search(cumulative, (*shape, n), generator)
        return Batch(self.images[anchor], self.images[positive], self.images[negative])

    def evaluate(self, encoder: Encoder) -> list[Metrics]:
        """Validation metrics of each run."""
        return self._judge(encoder, self.validation, "val")

    def final(self, encoder: Encoder) -> list[Metrics]:
        """Test metrics of each run; to be looked at once, with the weights that validation has chosen."""
        return self._judge(encoder, self.test, "test")

    def _judge(self, encoder: Encoder, judged: _Judged, split: str) -> list[Metrics]:
        mu, kappa = _encoded(encoder, judged.images, self.n_runs)
        _, kappa_of_crops = _encoded(encoder, judged.crops, self.n_runs)
        return [
            {
                f"{split}/crop_rank_corr": crop_rank_corr(kappa_of_crops[run], judged.kept),
                f"{split}/entropy_rank_corr": rank_corr_with_uncertainty(kappa[run], judged.entropy),
                f"{split}/recall_at_1": recall_at_1(mu[run], judged.labels),
                f"{split}/kappa_mean": kappa[run].mean().item(),
                f"{split}/kappa_median": kappa[run].median().item(),
            }
            for run in range(self.n_runs)
        ]


def data_folder() -> Path:
    """Where image sets are kept: PCL_DATA, or data/ where the program was started."""
    return Path(os.environ.get("PCL_DATA", "data"))


def _training_part(config: CifarTask.Config, data: ImageSet, train: Tensor) -> tuple[Tensor, Tensor]:
    """Images and their P(C|x)."""
    if config.labels is Labels.SOFT:
        return data.images[train], data.soft_labels[train]
    if config.labels is Labels.HARD:
        images, labels = data.images[train], data.soft_labels[train].argmax(1)
    elif data.has_train:
        images, labels = data.train_images, data.train_labels
    else:
        raise ValueError(f"`task.labels=cifar10_hard` needs training images apart, which {data.name!r} does not have.")
    return images, torch.nn.functional.one_hot(labels, len(data.classes)).float()


def _judged(data: ImageSet, chosen: Tensor, purpose: str) -> _Judged:
    images, shares = data.images[chosen], data.soft_labels[chosen]
    kept = draw_fractions(len(images), torch.Generator().manual_seed(mixed_seed(purpose)))
    return _Judged(images, shares.argmax(1), entropy(shares), centre_crop_and_resize(images, kept), kept)


def _search(cumulative: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Indices drawn with weights whose cumulative sums are given, (..., n) -> shape (..., how many)."""
    u = torch.rand(shape, device=generator.device, generator=generator, dtype=torch.float64)
    total = cumulative[..., -1:]
    found = torch.searchsorted(cumulative, u * total, right=True)  # right: an image of weight 0 is never drawn
    return found.clamp(max=cumulative.shape[-1] - 1)


@torch.no_grad()
def _encoded(encoder: Encoder, images: Tensor, n_runs: int) -> tuple[Tensor, Tensor]:
    """Modes (R, n, D) and concentrations (R, n), with the statistics of training where layers have any."""
    was_training = encoder.training
    encoder.eval()
    try:
        posteriors = [encoder(part.expand(n_runs, *part.shape)) for part in images.split(_BLOCK)]
    finally:
        encoder.train(was_training)
    return torch.cat([p.mu for p in posteriors], dim=1), torch.cat([p.kappa for p in posteriors], dim=1)
