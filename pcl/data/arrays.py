"""Image sets from arrays: an .npz, torchvision's files of CIFAR-10, the annotators' shares of CIFAR-10H."""

import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

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
_LEAST_AGREEMENT = 0.9  # of most voted class and label: 0.9921 in the order of the test set, 0.1 in another


class Arrays(NamedTuple):
    """The arrays of an .npz or of torchvision's files; an absent array is empty.

    Images are uint8 (N, 32, 32, 3), labels whole numbers (N,), probs (N, C), classes text (C,).
    """

    test_images: Array
    test_labels: Array
    train_images: Array
    train_labels: Array
    probs: Array
    classes: Array


def read_npz(path: Path) -> Arrays:
    """Read test_images and test_labels, and train_*, cifar10h_probs and classes if they are there."""
    try:
        opened = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"{path} must be an .npz of arrays, but cannot be read as one; it may be cut off.") from None
    if not isinstance(opened, np.lib.npyio.NpzFile):
        raise ValueError(f"{path} must be an .npz of named arrays, but is a single one.")
    with opened as archive:
        names = ("test_images", "test_labels")
        missing = [name for name in names if name not in archive]
        if missing:
            raise ValueError(
                f"{path} must hold the arrays {' and '.join(names)}, but {' and '.join(missing)} "
                f"{'is' if len(missing) == 1 else 'are'} missing; it has {', '.join(archive.files) or 'none'}."
            )
        none = np.empty(0, dtype=np.uint8)
        wanted = (*names, "train_images", "train_labels", "cifar10h_probs", "classes")
        try:
            return Arrays(*(archive.get(name, none) for name in wanted))
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
    n_classes = 1 + max([-1, *(int(part.max()) for part in (labels, train_labels) if part.numel())])
    if n_classes > max(2, len(labels) + len(train_labels)):
        raise ValueError(f"{name}: labels must be 0, 1, ... without large gaps, but got {n_classes - 1}.")
    probs = arrays.probs
    if probs.size:
        if probs.ndim != 2 or probs.dtype.kind not in "fiu":
            raise ValueError(f"{name}: soft labels must be numbers (N, C), but got {probs.dtype} {probs.shape}.")
        n_classes = probs.shape[1]
    classes = tuple(str(text) for text in arrays.classes) or tuple(str(index) for index in range(n_classes))
    if probs.size:
        soft = torch.from_numpy(probs.astype(np.float32))
    elif labels.numel() and int(labels.min()) < 0:
        raise ValueError(f"{name}: test_labels must not be negative, but one is {int(labels.min())}.")
    else:
        soft = torch.nn.functional.one_hot(labels, max(len(classes), n_classes)).float()
    images = _pixels(f"{name}: test_images", arrays.test_images)
    train_images = _pixels(f"{name}: train_images", arrays.train_images)
    return ImageSet(name, classes, images, soft, labels, train_images, train_labels)


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
    if images.ndim != 4 or images.shape[1:] != (SIDE, SIDE, 3) or images.dtype != np.uint8:
        raise ValueError(f"{what} must be uint8 (N, {SIDE}, {SIDE}, 3), but got {images.dtype} {images.shape}.")
    return torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2)))


def _labels(what: str, labels: Array) -> torch.Tensor:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"{what} must be whole numbers (N,), but got {labels.dtype} {labels.shape}.")
    return torch.from_numpy(labels.astype(np.int64))
