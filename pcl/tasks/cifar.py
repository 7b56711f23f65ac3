"""The CIFAR-10H experiment: pairs by labels; kappa is compared with crops and with annotators.

It works for any set of images with labels: see `pcl.data`. Images stay on the device as bytes.

Axes: R runs, N images, B anchors, C classes.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import final

import torch
from torch import Tensor

from pcl.data.augmentation import crop_and_flip, random_resized_crop
from pcl.data.authors_folds import Origin, image_split
from pcl.data.folds import N_FOLDS
from pcl.data.images import SIDE, ImageSet
from pcl.data.sources import data_folder, resolve
from pcl.encoders import Encoder, Inputs
from pcl.metrics.names import TEST, VAL, VAL_CROP
from pcl.metrics.uncertainty import crop_rank_corr
from pcl.tasks.base import ADDED_LATER, Batch, ChoiceBatch, Metrics, Negatives, PooledBatch, Task, TaskConfig
from pcl.tasks.judged_images import JudgedImages
from pcl.tasks.labelled import check_folds, check_size, encoded, has_entropy, label_metrics

_N_BYTES = 256  # values of eight bits


class Labels(Enum):
    """The training images, and the P(C|x) by which their pairs are drawn."""

    SOFT = "soft"  # three folds of CIFAR-10H, the annotators' shares
    HARD = "hard"  # the same images, the most voted class
    CIFAR10_HARD = "cifar10_hard"  # the 50,000 training images of CIFAR-10


class NegativeWeights(Enum):
    """Weight of an image in the draw of negatives for an anchor whose positive has the class c."""

    NOT_OF_CLASS = "not_of_class"  # 1 - P(c|x), as the paper writes it
    UNLIKE_ANCHOR = "unlike_anchor"  # 1 - sum_c P(c|x) P(c|anchor), as the released code computes it


class NegativePool(Enum):
    """The images that can be negatives."""

    ALL = "all"
    # Drawn among all, then replaced by the one at its place modulo 256: the released code keeps places in eight bits.
    MODULO_256 = "modulo_256"
    FIRST_256 = "first_256"  # drawn among the first 256 alone, by their own weights


class Augmentation(Enum):
    """Random changes of training images."""

    NONE = "none"
    CROP_FLIP = "crop_flip"  # cropped after padding by 4 pixels, and flipped: the paper's for training from scratch
    RANDOM_RESIZED_CROP = "random_resized_crop"  # a square of 20% to 100% of its area, enlarged and flipped


_AUGMENT = {
    Augmentation.NONE: None,
    Augmentation.CROP_FLIP: crop_and_flip,
    Augmentation.RANDOM_RESIZED_CROP: random_resized_crop,
}


class _Fold:
    """The training and evaluation images of a run."""

    def __init__(self, config: "CifarTask.Config", data: ImageSet, fold: int) -> None:
        self.config = config
        parts = image_split(data, fold, config.folds)
        self.images, shares = _training_part(config, data, parts.train)
        n_images, is_first = len(self.images), config.negative_pool is NegativePool.FIRST_256
        self.n_pool = n_images if config.negative_pool is NegativePool.ALL else min(n_images, _N_BYTES)
        # The cumulative weights of all images, by class: a draw is one search.
        self.shares = shares
        self.class_of = shares.double().cumsum(1)
        self.positives = shares.double().T.contiguous().cumsum(1)
        self.negatives = (1 - shares[: self.n_pool if is_first else n_images].double()).T.contiguous().cumsum(1)
        lonely = ((self.positives[:, -1] > 0) & (self.negatives[:, -1] == 0)).nonzero()
        self.without_negatives = data.classes[int(lonely[0])] if len(lonely) else ""
        n = config.n_eval
        self.validation = JudgedImages.of(data, parts.validation[:n], config.crops, f"crops/val/{fold}")
        self.test = JudgedImages.of(data, parts.test[:n], config.crops, f"crops/test/{fold}")

    def to(self, device: torch.device) -> None:
        """Move its tensors to a device."""
        for name in ("images", "shares", "class_of", "positives", "negatives"):
            setattr(self, name, getattr(self, name).to(device))
        for name in ("validation", "test"):
            setattr(self, name, JudgedImages(*(tensor.to(device) for tensor in getattr(self, name))))

    def draw(self, batch_size: int, n_negatives: int, generator: torch.Generator) -> Batch:
        """Draw a batch of one run."""
        return Batch(*(self._taken(places, generator) for places in self.places(batch_size, n_negatives, generator)))

    def places(self, batch_size: int, n_negatives: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """Draw places of anchors, uniformly, of positives by P(c|x+) with c from P(C|x), and of negatives, (B, N)."""
        if n_negatives and self.without_negatives:
            raise ValueError(
                f"There must be negatives for every class, but all images that they are drawn from are of "
                f"{self.without_negatives!r} (`task.negative_pool={self.config.negative_pool.value}`)."
            )
        anchor = torch.randint(len(self.images), (batch_size,), device=generator.device, generator=generator)
        chosen = _search(self.class_of[anchor], (batch_size, 1), generator).squeeze(-1)
        positive = _search(self.positives[chosen], (batch_size, 1), generator).squeeze(-1)
        if self.config.negative_weights is NegativeWeights.UNLIKE_ANCHOR:
            unlike = 1 - self.shares[anchor] @ self.shares[: self.negatives.shape[1]].T
            cumulative = unlike.double().cumsum(-1)
        else:
            cumulative = self.negatives[chosen]
        negative = _search(cumulative, (batch_size, n_negatives), generator)
        if self.config.negative_pool is NegativePool.MODULO_256:
            negative = negative % _N_BYTES
        return anchor, positive, negative

    def choices(self, batch_size: int, n_candidates: int, generator: torch.Generator) -> ChoiceBatch:
        """Draw anchors, candidates and, for each anchor, the one that is its positive; a batch of one run.

        An anchor has a class c from P(C|x), and takes a candidate in proportion to P(c|x'). Candidates are one image of
        each class, drawn by P(c|x'), and uniform ones, so that every class has some. They are drawn independently of
        the anchors: the law of the choice, given the candidates, is then exact, whatever the law of the candidates.
        """
        n_classes = self.shares.shape[1]
        if n_candidates < n_classes:
            raise ValueError(
                f"Negatives from the pool need a candidate of each class: `training.n_negatives >= {n_classes}` must "
                f"hold, but got {n_candidates}."
            )
        device = generator.device
        anchor = torch.randint(len(self.images), (batch_size,), device=device, generator=generator)
        label = _search(self.class_of[anchor], (batch_size, 1), generator).squeeze(-1)
        of_classes = _search(self.positives, (n_classes, 1), generator).squeeze(-1)
        others = torch.randint(len(self.images), (n_candidates - n_classes,), device=device, generator=generator)
        candidates = torch.cat([of_classes, others])
        weights = self.shares[candidates].double().T.contiguous().cumsum(1)  # by class
        chosen = _search(weights[label], (batch_size, 1), generator).squeeze(-1)
        return ChoiceBatch(self._taken(anchor, generator), self._taken(candidates, generator), chosen)

    def _taken(self, index: Tensor, generator: torch.Generator) -> Tensor:
        augment = _AUGMENT[self.config.augmentation]
        return augment(self.images, index, generator) if augment else self.images[index]


@final
class CifarTask(Task):
    """Labelled images: fold f trains on sets f, f + 1 and f + 2, validates on f + 3 and tests on f + 4, modulo five.

    Five consecutive seeds have each fold once.
    """

    split = "val"
    selects = VAL_CROP

    @dataclass(frozen=True)
    class Config(TaskConfig):
        """Settings of the task."""

        data: str = "auto"  # the images: auto, cifar10h, embedded, or a folder or file; see `pcl.data.sources.resolve`
        labels: Labels = Labels.SOFT  # training images and their labels
        fold: int = 0  # number of the fold, of five; a run has this one plus its seed, modulo five
        folds: Origin = Origin.AUTHORS  # origin of the five sets of images
        crops: Origin = Origin.AUTHORS  # origin of the sizes of crops that kappa is compared with
        n_eval: int = 2_000  # largest number of images for validation, and for the test; the first of their set
        negative_weights: NegativeWeights = NegativeWeights.NOT_OF_CLASS  # weights by which negatives are drawn
        negative_pool: NegativePool = NegativePool.ALL  # images that can be negatives
        augmentation: Augmentation = Augmentation.NONE  # random changes, independent for each image
        side: int = field(default=SIDE, metadata=ADDED_LATER)  # rows and columns of an image; size to read folders at

        def __post_init__(self) -> None:
            check_folds(self.fold, self.n_eval)
            if not 32 <= self.side <= 512:
                raise ValueError(f"`32 <= task.side <= 512` must hold, but got {self.side}.")

        @property
        def inputs(self) -> Inputs:
            return Inputs((3, self.side, self.side))

        def check_negatives(self, sources: Collection[Negatives]) -> None:
            if Negatives.SHARED in sources:
                raise ValueError("With images, each anchor has negatives of its own, by class; they cannot be shared.")

        def build(self, seeds: Sequence[int]) -> "CifarTask":
            return CifarTask(self, resolve(self.data, data_folder(), side=self.side), seeds)

        def check_images(self, images: ImageSet) -> None:
            """Raise a ValueError unless there are enough images for folds, and the images that `labels` needs."""
            check_size(images.name, len(images.images), "images")
            if self.labels is Labels.CIFAR10_HARD and not images.has_train:
                raise ValueError(
                    f"`task.labels=cifar10_hard` needs separate training images, which {images.name!r} does not have."
                )

        def fold_of(self, seed: int) -> int:
            """Return the fold of a run."""
            return (self.fold + seed) % N_FOLDS

    def __init__(self, config: Config, data: ImageSet, seeds: Sequence[int]) -> None:
        config.check_images(data)
        self.config = config
        self._has_entropy = has_entropy(data.soft_labels)
        numbers = [config.fold_of(seed) for seed in seeds]
        self._different = {number: _Fold(config, data, number) for number in dict.fromkeys(numbers)}
        self.folds = [self._different[number] for number in numbers]

    @property
    def n_runs(self) -> int:
        return len(self.folds)

    def to(self, device: torch.device) -> "CifarTask":
        for fold in self._different.values():
            fold.to(device)
        return self

    def draw(self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator) -> Batch:
        if source is Negatives.POOL:
            anchor, candidates, chosen = self._choices(batch_size, n_negatives, generator)
            places = chosen.view(*chosen.shape, 1, 1, 1).expand(-1, -1, *candidates.shape[2:])
            return Batch(anchor, candidates.gather(1, places), candidates.unsqueeze(1))
        n = n_negatives if source is Negatives.DRAWN else 0
        batches = [fold.draw(batch_size, n, generator) for fold in self.folds]
        return Batch(*(torch.stack(parts) for parts in zip(*batches, strict=True)))

    def draw_choices(self, batch_size: int, n_candidates: int, generator: torch.Generator) -> ChoiceBatch | None:
        is_ours = type(self).draw is CifarTask.draw  # a user's own may draw in another way
        return self._choices(batch_size, n_candidates, generator) if is_ours else None

    def _choices(self, batch_size: int, n_candidates: int, generator: torch.Generator) -> ChoiceBatch:
        batches = [fold.choices(batch_size, n_candidates, generator) for fold in self.folds]
        return ChoiceBatch(*(torch.stack(parts) for parts in zip(*batches, strict=True)))

    @property
    def n_pool(self) -> int:
        """Number P of a run's images that can be negatives; the largest of all runs."""
        return max(fold.n_pool for fold in self.folds)

    @property
    def has_pool(self) -> bool:
        """True if `draw_pooled` is possible: images are not augmented, and runs have equally many for negatives."""
        is_plain = self.config.augmentation is Augmentation.NONE
        return is_plain and all(fold.n_pool == self.n_pool for fold in self.folds)

    def draw_pooled(self, batch_size: int, n_negatives: int, generator: torch.Generator) -> PooledBatch:
        """Draw the batch that `draw` returns, but with each image that can be a negative once."""
        n = self.n_pool
        drawn = [(fold.images, *fold.places(batch_size, n_negatives, generator)) for fold in self.folds]
        parts = [(images[a], images[p], images[:n], negatives) for images, a, p, negatives in drawn]
        return PooledBatch(*(torch.stack(of_runs) for of_runs in zip(*parts, strict=True)))

    def evaluate(self, encoder: Encoder) -> list[Metrics]:
        return self._metrics(encoder, [fold.validation for fold in self.folds], "val")

    def final(self, encoder: Encoder) -> list[Metrics]:
        """Return test metrics of each run; a training ends with those of its best and of its last weights."""
        return self._metrics(encoder, [fold.test for fold in self.folds], "test")

    def _metrics(self, encoder: Encoder, by_run: list[JudgedImages], split: str) -> list[Metrics]:
        crop, *_ = VAL if split == "val" else TEST
        whole = encoded(encoder, [judged.images for judged in by_run])
        crops = encoded(encoder, [judged.crops for judged in by_run])
        found = []
        for judged, (mu, kappa), (_, kappa_of_crops) in zip(by_run, whole, crops, strict=True):
            by_labels = label_metrics(split, mu, kappa, judged.labels, judged.entropy if self._has_entropy else None)
            found.append({crop: crop_rank_corr(kappa_of_crops, judged.kept), **by_labels})
        return found


def _training_part(config: CifarTask.Config, data: ImageSet, train: Tensor) -> tuple[Tensor, Tensor]:
    """Return images and their P(C|x)."""
    if config.labels is Labels.SOFT:
        return data.images[train], data.soft_labels[train]
    if config.labels is Labels.HARD:
        images, labels = data.images[train], data.soft_labels[train].argmax(1)
    else:
        images, labels = data.train_images, data.train_labels
    return images, torch.nn.functional.one_hot(labels, len(data.classes)).float()


def _search(cumulative: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw indices with weights whose cumulative sums are given, (..., n) -> shape (..., how many)."""
    u = torch.rand(shape, device=generator.device, generator=generator, dtype=torch.float64)
    found = torch.searchsorted(cumulative, u * cumulative[..., -1:], right=True)  # images of weight 0 are never drawn
    return found.clamp(max=cumulative.shape[-1] - 1)
