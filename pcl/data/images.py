"""A set of labelled square images, and its file.

Axes: N images, C classes, S pixels of a side.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from pcl.data.caches import damage_told
from pcl.storage.files import clear_leftovers, replacing
from pcl.storage.installation import command

SIDE = 32  # pixels, by default
_SUM_TOLERANCE = 1e-3  # of a row of soft labels: shares are published with at least three decimals
_FORMAT = 1  # version of the file format
_TENSORS = ("images", "soft_labels", "hard_labels", "train_images", "train_labels")


def no_images() -> Tensor:
    """Return an empty stack of images."""
    return torch.empty(0, 3, SIDE, SIDE, dtype=torch.uint8)


@final
@dataclass(frozen=True, eq=False)
class ImageSet:
    """Images with the annotators' shares and one label each, and optionally separate training images."""

    name: str  # "cifar10h", "embedded", or the name of the user's folder or file
    classes: tuple[str, ...]  # names of the C classes, C at least 2
    images: Tensor  # uint8 (N, 3, S, S), channels first: the images that are split into folds
    soft_labels: Tensor  # float32 (N, C), P(C|x) of each image; rows sum to 1
    hard_labels: Tensor  # int64 (N,), the set's own labels; the most voted class `soft_labels.argmax(1)` may differ
    # uint8 (M, 3, S, S), in no fold, such as the 50,000 of CIFAR-10; M may be 0.
    train_images: Tensor = field(default_factory=no_images)
    train_labels: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.int64))  # int64 (M,)

    def __post_init__(self) -> None:
        n_classes = len(self.classes)
        if n_classes < 2:
            raise ValueError(f"{self.name}: at least two classes must be given, but got {n_classes}: {self.classes}.")
        _require_images(f"{self.name}: images", self.images)
        if len(self.images) < 1:
            raise ValueError(f"{self.name}: at least one image must be given, but got none.")
        _require_images(f"{self.name}: train_images", self.train_images)
        if self.has_train and self.train_images.shape[1:] != self.images.shape[1:]:
            shapes = f"{tuple(self.train_images.shape)} and {tuple(self.images.shape)}"
            raise ValueError(f"{self.name}: train_images and images must be of one size, but got {shapes}.")
        _require_labels(f"{self.name}: hard_labels", self.hard_labels, len(self.images), n_classes)
        _require_labels(f"{self.name}: train_labels", self.train_labels, len(self.train_images), n_classes)
        _require_shares(f"{self.name}: soft_labels", self.soft_labels, (len(self.images), n_classes))

    @property
    def side(self) -> int:
        """Number S of rows, and of columns, of an image."""
        return self.images.shape[-1]

    @property
    def has_train(self) -> bool:
        """True if there are training images apart from the folds."""
        return len(self.train_images) > 0

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits, equal for two sets only if their classes, pixels and labels are equal."""
        tensors = [getattr(self, name) for name in _TENSORS]
        head = {"classes": self.classes, "shapes": [list(tensor.shape) for tensor in tensors]}
        digest = hashlib.sha256(json.dumps(head).encode())
        for tensor in tensors:
            digest.update(tensor.cpu().contiguous().numpy())
        return digest.hexdigest()[:16]


def cache_file(name: str, folder: Path) -> Path:
    """Return the file of a set of this name."""
    return folder / f"{name}.pt"


def save(images: ImageSet, path: Path) -> None:
    """Write a set atomically; a file there is replaced, its folder created."""
    content: dict[str, Any] = {name: getattr(images, name).cpu().contiguous() for name in _TENSORS}
    content |= {
        "format": _FORMAT, "name": images.name, "classes": list(images.classes), "fingerprint": images.fingerprint,
    }  # fmt: skip
    clear_leftovers(path.parent)
    with replacing(path) as unfinished:
        torch.save(content, unfinished)


def load(path: Path) -> ImageSet:
    """Load a set that `save` wrote, memory-mapped, and verify its fingerprint.

    Raises:
        Damaged: If the file is truncated, changed or of another kind.
        OSError: If it cannot be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no image set at {path}; `{command('data')}` makes one.")
    with damage_told(path, "not an image set", f"delete it and run `{command('data')}` again"):
        content = torch.load(path, weights_only=True, mmap=True, map_location="cpu")
        if content["format"] != _FORMAT:
            raise ValueError(f"format {_FORMAT} was expected, not {content['format']}")
        tensors = {name: content[name] for name in _TENSORS}
        images = ImageSet(name=content["name"], classes=tuple(content["classes"]), **tensors)
        if images.fingerprint != content["fingerprint"]:
            raise ValueError(f"its content is {images.fingerprint}, and was {content['fingerprint']}")
    return images


def _require_images(what: str, images: Tensor) -> None:
    is_square = images.dim() == 4 and images.shape[1] == 3 and images.shape[2] == images.shape[3]
    if not is_square or images.dtype != torch.uint8:
        raise ValueError(f"{what} must be uint8 of shape (N, 3, S, S), but got {_kind(images)} {tuple(images.shape)}.")


def _require_labels(what: str, labels: Tensor, n: int, n_classes: int) -> None:
    if tuple(labels.shape) != (n,) or labels.dtype != torch.int64:
        raise ValueError(f"{what} must be int64 of shape ({n},), but got {_kind(labels)} {tuple(labels.shape)}.")
    outside = ((labels < 0) | (labels >= n_classes)).nonzero()
    if len(outside):
        first = int(outside[0])
        raise ValueError(
            f"{what} must lie in 0..{n_classes - 1}, but label {first} is {int(labels[first])} "
            f"({len(outside)} of {n} lie outside)."
        )


def _require_shares(what: str, shares: Tensor, shape: tuple[int, int]) -> None:
    if tuple(shares.shape) != shape or shares.dtype != torch.float32:
        raise ValueError(f"{what} must be float32 of shape {shape}, but got {_kind(shares)} {tuple(shares.shape)}.")
    negative = (~(shares >= 0)).any(dim=1).nonzero()  # catches NaN too
    if len(negative):
        first = int(negative[0])
        raise ValueError(f"{what} must not be negative, but row {first} is {shares[first].tolist()}.")
    sums = shares.sum(dim=1, dtype=torch.float64)
    wrong = ((sums - 1).abs() > _SUM_TOLERANCE).nonzero()
    if len(wrong):
        first = int(wrong[0])
        raise ValueError(
            f"{what} must sum to 1 in every row, but row {first} sums to {float(sums[first]):.4g} "
            f"({len(wrong)} of {len(shares)} do not)."
        )


def _kind(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
