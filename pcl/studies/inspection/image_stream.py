"""Folders of any number of images, decoded batch by batch: no more than one batch of pixels is held.

Axes: N images, n images of a batch.
"""

import os
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from pcl.data.folder import Pixels, decoded, image_files
from pcl.data.votes import VOTES


class DecodedBatch(NamedTuple):
    """Images of one batch, and files that are not images; places are indices into `ImageFolder.files`."""

    places: list[int]  # of the images
    images: Tensor  # uint8 (n, 3, side, side)
    unreadable: list[int]


@dataclass(frozen=True)
class ImageFolder:
    """The files of a folder."""

    path: Path
    files: list[Path]  # all that are not hidden, in order

    @classmethod
    def of(cls, path: Path) -> Self:
        """List a folder.

        Raises:
            ValueError: If the path is not a folder, or has no files.
        """
        if not path.is_dir():
            raise ValueError(f"{path} must be a folder of images, but {'is a file' if path.exists() else 'is absent'}.")
        files = [file for file in image_files(path) if file != path / VOTES]
        if not files:
            raise ValueError(f"{path} must have images in it, but is empty.")
        return cls(path, files)

    def name_of(self, place: int) -> str:
        """Return a file's path inside the folder, as text for a table: bytes that are not UTF-8 become escapes."""
        name = self.files[place].relative_to(self.path).as_posix()
        return os.fsencode(name).decode("utf-8", "backslashreplace")

    def class_of(self, place: int) -> str:
        """Return the subfolder that a file lies in; empty for a file next to the subfolders."""
        subfolder, separator, _ = self.name_of(place).partition("/")
        return subfolder if separator else ""

    def image(self, place: int, side: int) -> Tensor | None:
        """Decode one file, uint8 (3, side, side); return None if it cannot be read."""
        with warnings.catch_warnings(action="ignore"):
            pixels = _pixels(self.files[place], side)
        return None if pixels is None else torch.tensor(pixels)

    def batches(self, side: int, batch_size: int) -> Iterator[DecodedBatch]:
        """Decode all files, cropped to a centred square and resized, in their order."""
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow releases the GIL while decoding
            for start in range(0, len(self.files), batch_size):
                yield self._batch(pool, range(start, min(start + batch_size, len(self.files))), side)

    def _batch(self, pool: ThreadPoolExecutor, places: range, side: int) -> DecodedBatch:
        with warnings.catch_warnings(action="ignore"):  # Pillow's, about transparency, sizes and EXIF
            pixels = list(pool.map(lambda place: _pixels(self.files[place], side), places))
        found = {place: image for place, image in zip(places, pixels, strict=True) if image is not None}
        images = np.stack(list(found.values())) if found else np.empty((0, 3, side, side), np.uint8)
        return DecodedBatch(list(found), torch.from_numpy(images), [place for place in places if place not in found])


def _pixels(path: Path, side: int) -> Pixels | None:
    try:
        return decoded(path, side)
    except Exception:  # by format, Pillow raises OSError, ValueError, SyntaxError, struct.error and others
        return None
