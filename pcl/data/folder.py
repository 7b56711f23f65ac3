"""The user's own images: a folder with one subfolder per class, or with the votes of annotators."""

import hashlib
import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcl.data.caches import sound
from pcl.data.images import SIDE, ImageSet, cache_file, load, save
from pcl.data.votes import VOTES, labels_of, read_votes, shares_of
from pcl.storage.files import write_text

Tell = Callable[[str], None]
Pixels = NDArray[np.uint8]

RESERVED = ("auto", "cifar10h", "embedded")  # names of sets that are not the user's
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM", "TGA")  # not all of Pillow's: some run other programs
MOST_PIXELS = 64_000_000  # of the largest image that is decoded: 200 MB in memory
_N_NAMED = 5  # unreadable files named in a message


class BadFiles(Enum):
    """Treatment of files that cannot be read as images."""

    REFUSE = "refuse"
    SKIP = "skip"


@dataclass(frozen=True)
class _Listing:
    """The files of a folder, with their labels."""

    classes: list[str]
    files: list[Path]
    labels: list[int]  # class of each file, by its subfolder or the most votes
    shares: dict[str, Tensor]  # of the classes in annotators' votes, by the file's path in the folder


def read_folder(folder: Path, cache: Path, bad_files: BadFiles, tell: Tell, side: int = SIDE) -> ImageSet:
    """Read images, cropped to a centred square and resized to `side` pixels.

    Each belongs to its subfolder's class alone, or to classes by annotators' votes (see `pcl.data.votes`). With votes
    for every image, subfolders are optional.

    The result is cached in `cache` under a name that hashes the files' names, sizes and times: later calls are fast,
    and a changed folder is read again. Hidden files are left out; nested files belong to the class above them. `tell`
    is called with a sentence about unreadable files that were left out.
    """
    listing = _listed(folder)
    name, n_files = _name(folder), len(listing.files)
    size = "" if side == SIDE else f"-{side}"
    path = cache_file(f"{name}-{_stamp(folder, listing.files)}-{bad_files.value}{size}", cache)
    left_out = path.with_suffix(".left_out.txt")
    if path.is_file() and (images := sound(load, path)) is not None:
        if left_out.is_file():
            tell(unreadable_told(left_out.read_text().splitlines(), n_files, folder) + " They are left out.")
        return images
    pixels, places, bad = _read(listing.files, side)
    if bad:
        told = unreadable_told(bad, n_files, folder)
        if bad_files is BadFiles.REFUSE:
            raise ValueError(f"{told} Remove them, or leave them out with `--skip-bad`.")
        tell(f"{told} They are left out.")
        write_text(left_out, "\n".join(bad) + "\n")
    soft = torch.stack([_soft(folder, listing, place) for place in places]) if places else torch.zeros(1, 0)
    empty = [text for text, total in zip_longest(listing.classes, soft.sum(0).tolist()) if not total]
    if empty:
        raise ValueError(f"Every class must have an image, but these in {folder} have none: {', '.join(empty)}.")
    # Shuffled, because some callers use the first training images only: in file order, these could be of one class.
    order = torch.tensor(sorted(range(len(places)), key=lambda place: hashlib.sha256(str(place).encode()).digest()))
    hard = torch.tensor([listing.labels[place] for place in places])[order]
    images = ImageSet(name, tuple(listing.classes), torch.from_numpy(np.stack(pixels))[order], soft[order], hard)
    save(images, path)
    return images


def _listed(folder: Path) -> _Listing:
    subfolders = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    file = folder / VOTES
    votes = read_votes(file) if file.is_file() else []
    if len(subfolders) >= 2:
        found = [(path, label) for label, name in enumerate(subfolders) for path in image_files(folder / name)]
        shares = shares_of(file, votes, [_inside(folder, path) for path, _ in found], subfolders)
        return _Listing(subfolders, [path for path, _ in found], [label for _, label in found], shares)
    if not votes:
        got = f"{len(subfolders)}: {subfolders[0]}" if subfolders else "none"
        raise ValueError(
            f"{folder} must have a file {VOTES}, or a subfolder for each of at least two classes, but got {got}."
        )
    files, classes = [path for path in image_files(folder) if path != file], labels_of(votes)
    shares = shares_of(file, votes, [_inside(folder, path) for path in files], classes)
    if without := [path for path in files if _inside(folder, path) not in shares]:
        raise ValueError(
            f"{file} must have votes on every image, or the images must be in subfolders of classes, but "
            f"{_inside(folder, without[0])} has neither ({len(without)} of {len(files)})."
        )
    return _Listing(classes, files, [int(shares[_inside(folder, path)].argmax()) for path in files], shares)


def _inside(folder: Path, path: Path) -> str:
    return path.relative_to(folder).as_posix()


def _soft(folder: Path, listing: _Listing, place: int) -> Tensor:
    """Return a file's shares of the classes, float32 (C,)."""
    one_hot = torch.nn.functional.one_hot(torch.tensor(listing.labels[place]), len(listing.classes)).float()
    return listing.shares.get(_inside(folder, listing.files[place]), one_hot)


def _name(folder: Path) -> str:
    name = re.sub(r"[^\w.-]", "_", folder.resolve().name)
    if name in RESERVED or not name.strip("."):
        raise ValueError(f"{folder} must not be called {name!r}, the name of another image set; rename it.")
    return name


def image_files(folder: Path) -> list[Path]:
    """Return all files below a folder, sorted, images or not; hidden ones are left out."""
    deep = (path for path in folder.rglob("*") if path.is_file() or not path.exists())  # or a broken link
    return sorted(path for path in deep if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _stamp(folder: Path, files: list[Path]) -> str:
    digest = hashlib.sha256(b"mixed")  # version of the cache's format
    if (folder / VOTES).is_file():
        digest.update((folder / VOTES).read_bytes())
    for path in files:
        state = path.stat() if path.exists() else path.lstat()
        digest.update(f"{path.relative_to(folder)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]


def _read(files: list[Path], side: int) -> tuple[list[Pixels], list[int], list[str]]:
    """Return pixels (3, side, side), the places of their files, and the unreadable files."""
    pixels, places, bad = [], [], []
    for place, path in enumerate(files):
        try:
            with warnings.catch_warnings(action="ignore"):  # PIL's, about transparency, sizes and EXIF
                pixels.append(decoded(path, side))
        except Exception:  # by format, PIL raises OSError, ValueError, SyntaxError, struct.error and others
            bad.append(str(path))
            continue
        places.append(place)
    return pixels, places, bad


class TooLarge(ValueError):
    """An image has more than `MOST_PIXELS` pixels."""


def decoded(source: Path | BinaryIO, side: int = SIDE, formats: tuple[str, ...] = FORMATS) -> Pixels:
    """Return an image file as training uses it, (3, side, side): upright, RGB, its centred square resized.

    Raises:
        TooLarge: If it has more than `MOST_PIXELS`, before they are decoded.
        Exception: Of many kinds, by format, if it cannot be read as an image.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415  only for folders

    with Image.open(source, formats=formats) as opened:
        if math.prod(opened.size) > MOST_PIXELS:
            raise TooLarge(f"at most {MOST_PIXELS:,} pixels, but has {opened.size[0]} x {opened.size[1]}")
        opened.draft("RGB", (4 * side, 4 * side))  # decode a large JPEG at a fraction of its size
        upright = ImageOps.exif_transpose(opened)
        if upright.mode.startswith("I;16"):  # 16-bit grey, which PIL would clip at 255: white
            upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        coloured = upright.convert("RGB")
    return fitted(np.asarray(coloured), side)


def fitted(pixels: Pixels, side: int = SIDE) -> Pixels:
    """Return the centred square of RGB pixels (H, W, 3) as (3, side, side), resized unless it has that size."""
    from PIL import Image, ImageOps  # noqa: PLC0415  only for folders

    square = pixels
    if pixels.shape[:2] != (side, side):
        resized = ImageOps.fit(Image.fromarray(pixels), (side, side), method=Image.Resampling.BICUBIC)
        square = np.asarray(resized, dtype=np.uint8)
    return square.transpose(2, 0, 1)


def unreadable_told(bad: list[str], n: int, folder: Path) -> str:
    """Return a sentence that counts unreadable files among n, and names the first."""
    more = f" and {len(bad) - _N_NAMED} more" if len(bad) > _N_NAMED else ""
    return f"{len(bad)} of {n} files in {folder} cannot be read as images: {', '.join(bad[:_N_NAMED])}{more}."
