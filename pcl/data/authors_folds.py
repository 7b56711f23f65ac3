"""The division of CIFAR-10H's images into folds, and the sizes of their crops, that the paper's authors published."""

from enum import Enum
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pcl.data.arrays import CIFAR10H
from pcl.data.folds import Split, split, split_of
from pcl.data.images import ImageSet

_FOLDER = Path(__file__).with_name("authors")  # its README.md says where the numbers are from
_N_IMAGES = 10_000


class Origin(Enum):
    """The origin of folds or of the sizes of crops."""

    AUTHORS = "authors"  # published by the paper's authors, for CIFAR-10H; other images get the program's own
    OWN = "own"  # the program's own, for any images


def has_authors(images: ImageSet) -> bool:
    """Return whether the authors published folds and crops of these images."""
    return images.name == CIFAR10H and len(images.images) == _N_IMAGES


def image_split(images: ImageSet, fold: int, origin: Origin) -> Split:
    """Return a fold of an image set; the authors' training images keep the authors' order."""
    if origin is Origin.AUTHORS and has_authors(images):
        return split_of(authors_folds(), fold)
    return split(len(images.images), fold)


@lru_cache
def authors_folds() -> tuple[Tensor, ...]:
    """Return the authors' five sets of 2,000 images, int64, in their order; do not modify them."""
    return tuple(
        torch.from_numpy(np.load(_FOLDER / "cifar10h-folds.npy", allow_pickle=False).astype(np.int64)).unbind()
    )


@lru_cache
def authors_crops() -> Tensor:
    """Return the authors' 2,000 crop fractions, float64 in [0.25, 1], for validation and test images alike.

    Do not modify them.
    """
    return torch.from_numpy(np.load(_FOLDER / "cifar10h-crops.npy", allow_pickle=False))
