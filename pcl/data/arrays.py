"""Data sets from arrays: images of an .npz, torchvision's CIFAR-10 with CIFAR-10H's shares, a user's features."""

import hashlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, final

import numpy as np
import numpy.typing as npt
import torch

from pcl.data.download import Remote
from pcl.data.images import SIDE, ImageSet, no_images

Array = npt.NDArray[Any]

CIFAR10H = "cifar10h"
CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_N_TEST, _N_TRAIN = 10_000, 50_000
_DEVIATIONS = (0.01, 100.0)  # range of the features' standard deviation in which networks train without standardising
_LEAST_AGREEMENT = 0.9  # of most voted class and label: 0.9921 in the order of the test set, 0.1 in any other


class Arrays(NamedTuple):
    """The arrays of an .npz or of torchvision's files; an absent array is empty.

    Images are uint8 (N, S, S, 3), labels whole numbers (N,), probs (N, C), classes text (C,).
    """

    test_images: Array
    test_labels: Array
    train_images: Array
    train_labels: Array
    probs: Array
    classes: Array


@final
@dataclass(frozen=True, eq=False)
class FeatureSet:
    """Features of labelled items, such as those from a frozen network."""

    name: str  # of the file
    classes: tuple[str, ...]
    features: torch.Tensor  # float32 (N, F)
    soft_labels: torch.Tensor  # float32 (N, C), P(C|x); rows sum to 1

    @cached_property
    def fingerprint(self) -> str:
        """Sixteen hexadecimal digits, equal for two sets only if their classes, features and labels are equal."""
        head = {"classes": self.classes, "shapes": [list(self.features.shape), list(self.soft_labels.shape)]}
        digest = hashlib.sha256(json.dumps(head).encode())
        for tensor in (self.features, self.soft_labels):
            digest.update(tensor.contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def read_features(text: str) -> FeatureSet:
    """Read features (N, F) and labels (N,) of an .npz, and probs (N, C) and classes (C,) if present.

    Raises:
        ValueError: If there is no such file, or its arrays do not have this form.
    """
    path = Path(os.path.expanduser(text))
    if path.suffix != ".npz" or not path.is_file():
        raise ValueError(f"Features must be in an .npz file, but {text!r} is not one.")
    arrays = _arrays(path, ("features", "labels"), ("probs", "classes"))
    features, labels = arrays["features"], _labels(f"{path}: labels", arrays["labels"])
    if features.ndim != 2 or features.dtype.kind != "f" or not features.size or len(features) != len(labels):
        got = f"{features.dtype} {features.shape} and {len(labels)} labels"
        raise ValueError(f"{path}: features must be floats (N, F) with N labels, but got {got}.")
    values = torch.from_numpy(features.astype(np.float32))
    deviation = float(values.std())
    if not _DEVIATIONS[0] <= deviation <= _DEVIATIONS[1]:  # catches NaN too
        raise ValueError(
            f"{path}: features must be finite, with a standard deviation over all from {_DEVIATIONS[0]} to "
            f"{_DEVIATIONS[1]}, but it is {deviation:.3g}; standardise them."
        )
    name = re.sub(r"[^\w.-]", "_", path.stem)
    classes, soft = _classes(str(path), arrays["probs"], arrays["classes"], labels, _n_classes(str(path), labels))
    if soft.shape != (len(values), len(classes)) or len(classes) < 2 or not _are_shares(soft):
        raise ValueError(
            f"{path}: probs, or else labels, must give each row shares of at least two classes that sum to 1, but got "
            f"{tuple(soft.shape)} for {len(values)} rows and {len(classes)} classes."
        )
    return FeatureSet(name, classes, values, soft)


def _are_shares(soft: torch.Tensor) -> bool:
    return bool((soft >= 0).all() and ((soft.sum(1) - 1).abs() < 1e-3).all())


def read_npz(path: Path) -> Arrays:
    """Read test_images and test_labels, and train_*, cifar10h_probs and classes if present."""
    wanted = ("train_images", "train_labels", "cifar10h_probs", "classes")
    return Arrays(*_arrays(path, ("test_images", "test_labels"), wanted).values())


def _arrays(path: Path, names: Sequence[str], optional: Sequence[str]) -> Mapping[str, Array]:
    """Read arrays by name, in this order; an absent optional one is empty."""
    try:
        opened = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"{path} must be an .npz of arrays, but cannot be read as one; it may be cut off.") from None
    if not isinstance(opened, np.lib.npyio.NpzFile):
        raise ValueError(f"{path} must be an .npz of named arrays, but is a single one.")
    with opened as archive:
        missing = [name for name in names if name not in archive]
        if missing:
            raise ValueError(
                f"{path} must hold the arrays {' and '.join(names)}, but {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing; it has {', '.join(archive.files) or 'none'}."
            )
        none = np.empty(0, dtype=np.uint8)
        try:
            return {name: archive.get(name, none) for name in (*names, *optional)}
        except (ValueError, OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} is damaged, or holds objects instead of arrays ({error}).") from None


def read_torchvision(folder: Path) -> Arrays:
    """Read CIFAR-10 from torchvision's files in `folder`/cifar-10-batches-py, after verifying each file's checksum."""
    from torchvision.datasets import CIFAR10  # noqa: PLC0415  seconds to import

    home = folder if folder.name != CIFAR10.base_folder else folder.parent
    meta = (CIFAR10.meta["filename"], CIFAR10.meta["md5"])
    for name, md5 in (*CIFAR10.train_list, *CIFAR10.test_list, meta):
        path = home / CIFAR10.base_folder / name
        if not path.is_file():
            raise ValueError(f"{folder} must hold torchvision's files of CIFAR-10, but {path} is not there.")
        if not Remote("", name, "md5", md5).matches(path):
            raise ValueError(f"{path} is damaged: its md5 is not {md5}. Delete it and download it again.")
    train, test = CIFAR10(home, train=True), CIFAR10(home, train=False)
    labels = [np.asarray(part.targets, dtype=np.int64) for part in (train, test)]
    none = np.empty(0, dtype=np.uint8)
    return Arrays(test.data, labels[1], train.data, labels[0], none, np.asarray(CIFAR10_CLASSES))


def read_probs(path: Path) -> Array:
    """Read the annotators' shares from an .npy."""
    try:
        probs: Array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"{path} must be an .npy of numbers, but cannot be read as one; it may be cut off.") from None
    if not isinstance(probs, np.ndarray):
        raise ValueError(f"{path} must be an .npy of numbers, but holds several arrays.")
    return probs


def image_set(name: str, arrays: Arrays) -> ImageSet:
    """Return an image set of any size; without annotators' shares, each image belongs to its label's class alone.

    Classes without names are numbered.
    """
    labels = _labels(f"{name}: test_labels", arrays.test_labels)
    train_labels = _labels(f"{name}: train_labels", arrays.train_labels)
    n_classes = _n_classes(name, torch.cat([labels, train_labels]))
    classes, soft = _classes(name, arrays.probs, arrays.classes, labels, n_classes)
    images = _pixels(f"{name}: test_images", arrays.test_images)
    train_images = _pixels(f"{name}: train_images", arrays.train_images)
    return ImageSet(name, classes, images, soft, labels, train_images, train_labels)


def _n_classes(name: str, labels: torch.Tensor) -> int:
    """Return the number of classes of labels that start at 0."""
    n_classes = 1 + int(labels.max()) if labels.numel() else 0
    if n_classes > max(2, len(labels)):
        raise ValueError(f"{name}: labels must be 0, 1, ... without large gaps, but got {n_classes - 1}.")
    return n_classes


def _classes(
    name: str, probs: Array, names: Array, labels: torch.Tensor, n_classes: int
) -> tuple[tuple[str, ...], torch.Tensor]:
    """Return the classes, numbered if they have no names, and soft labels: shares, or each label's class alone."""
    if probs.size:
        if probs.ndim != 2 or probs.dtype.kind not in "fiu":
            raise ValueError(f"{name}: soft labels must be numbers (N, C), but got {probs.dtype} {probs.shape}.")
        n_classes = probs.shape[1]
    classes = tuple(str(text) for text in names) or tuple(str(index) for index in range(n_classes))
    if probs.size:
        return classes, torch.from_numpy(probs.astype(np.float32))
    if labels.numel() and int(labels.min()) < 0:
        raise ValueError(f"{name}: labels must not be negative, but one is {int(labels.min())}.")
    return classes, torch.nn.functional.one_hot(labels, max(len(classes), n_classes)).float()


def cifar10h(arrays: Arrays) -> ImageSet:
    """Return CIFAR-10H as an image set, after checking its sizes, classes and order."""
    for what, part, n in (("test", arrays.test_images, _N_TEST), ("train", arrays.train_images, _N_TRAIN)):
        if part.shape != (n, SIDE, SIDE, 3):
            raise ValueError(f"CIFAR-10's {what}_images must be {(n, SIDE, SIDE, 3)}, but got {part.shape}.")
    if arrays.probs.shape != (_N_TEST, len(CIFAR10_CLASSES)):
        raise ValueError(f"CIFAR-10H's shares must be {(_N_TEST, len(CIFAR10_CLASSES))}, but got {arrays.probs.shape}.")
    images = image_set(CIFAR10H, arrays._replace(classes=np.asarray(CIFAR10_CLASSES)))
    for what, labels in (("test", images.hard_labels), ("train", images.train_labels)):
        counts = labels.bincount(minlength=len(CIFAR10_CLASSES))
        if counts.unique().numel() != 1:
            raise ValueError(
                f"CIFAR-10 has equally many {what} images of every class, but {what}_labels has {counts.tolist()}."
            )
    agreement = float((images.soft_labels.argmax(1) == images.hard_labels).double().mean())
    if agreement < _LEAST_AGREEMENT:
        raise ValueError(
            f"The annotators' shares must be in the order of the test images, but their most voted class is the label "
            f"of only {agreement:.1%} of the images (99.2% for CIFAR-10H)."
        )
    return images


def _pixels(what: str, images: Array) -> torch.Tensor:
    """Return the images with channels first; an empty array has no images."""
    if images.size == 0:
        return no_images()
    is_square = images.ndim == 4 and images.shape[3] == 3 and images.shape[1] == images.shape[2]
    if not is_square or images.dtype != np.uint8:
        raise ValueError(f"{what} must be uint8 (N, S, S, 3), but got {images.dtype} {images.shape}.")
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _labels(what: str, labels: Array) -> torch.Tensor:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"{what} must be whole numbers (N,), but got {labels.dtype} {labels.shape}.")
    return torch.from_numpy(labels.astype(np.int64))
