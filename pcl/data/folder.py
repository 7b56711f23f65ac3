"""The user's own images: a folder with one subfolder per class."""

import hashlib
import re
import warnings
from collections.abc import Callable
from enum import Enum
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from pcl.data.caches import sound
from pcl.data.images import SIDE, ImageSet, cache_file, load, save
from pcl.storage.files import write_text

Tell = Callable[[str], None]
Pixels = NDArray[np.uint8]

RESERVED = ("auto", "cifar10h", "embedded")  # names of sets that are not the user's
_N_NAMED = 5  # unreadable files named in a message


class BadFiles(Enum):
    """Treatment of files that cannot be read as images."""

    REFUSE = "refuse"
    SKIP = "skip"


def read_folder(folder: Path, cache: Path, bad_files: BadFiles, tell: Tell) -> ImageSet:
    """Read images, cropped to a centred square and resized to 32 x 32; each belongs to its subfolder's class alone.

    The result is cached in `cache` under a name that hashes the files' names, sizes and times: later calls are fast,
    and a changed folder is read again. Hidden files are left out, nested ones belong to the class above them; `tell` is
    called with a sentence about unreadable files that were left out.
    """
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        got = f"{len(classes)}: {classes[0]}" if classes else "none"
        raise ValueError(f"{folder} must have a subfolder for each of at least two classes, but got {got}.")
    files = [_files(folder / name) for name in classes]
    n_files = sum(map(len, files))
    name = _name(folder)
    path = cache_file(f"{name}-{_stamp(folder, files)}-{bad_files.value}", cache)
    left_out = path.with_suffix(".left_out.txt")
    if path.is_file() and (images := sound(load, path)) is not None:
        if left_out.is_file():
            tell(_told(left_out.read_text().splitlines(), n_files, folder) + " They are left out.")
        return images
    pixels, labels, bad = _read(files)
    if bad:
        told = _told(bad, n_files, folder)
        if bad_files is BadFiles.REFUSE:
            raise ValueError(f"{told} Remove them, or leave them out with `--skip-bad`.")
        tell(f"{told} They are left out.")
        write_text(left_out, "\n".join(bad) + "\n")
    empty = [text for index, text in enumerate(classes) if index not in set(labels)]
    if empty:
        raise ValueError(f"Every class must have an image, but {', '.join(empty)} in {folder} has none.")
    # Shuffled, for those who use the first training images only: in the files' order, they could be of one class.
    order = torch.tensor(sorted(range(len(labels)), key=lambda place: hashlib.sha256(str(place).encode()).digest()))
    hard = torch.tensor(labels)[order]
    soft = torch.nn.functional.one_hot(hard, len(classes)).float()
    images = ImageSet(name, tuple(classes), torch.from_numpy(np.stack(pixels))[order], soft, hard)
    save(images, path)
    return images


def _name(folder: Path) -> str:
    name = re.sub(r"[^\w.-]", "_", folder.resolve().name)
    if name in RESERVED or not name.strip("."):
        raise ValueError(f"{folder} must not be called {name!r}, as another image set is; rename it.")
    return name


def _files(folder: Path) -> list[Path]:
    deep = (path for path in folder.rglob("*") if path.is_file() or not path.exists())  # or a broken link
    return sorted(path for path in deep if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _stamp(folder: Path, files: list[list[Path]]) -> str:
    digest = hashlib.sha256(b"mixed")  # version of the cache's format
    for path in (path for part in files for path in part):
        state = path.stat() if path.exists() else path.lstat()
        digest.update(f"{path.relative_to(folder)}\0{state.st_size}\0{state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:12]


def _read(files: list[list[Path]]) -> tuple[list[Pixels], list[int], list[str]]:
    """Return pixels (3, 32, 32), labels, and the unreadable files."""
    pixels, labels, bad = [], [], []
    for label, part in enumerate(files):
        for path in part:
            try:
                with warnings.catch_warnings(action="ignore"):  # PIL's, about transparency, sizes and EXIF
                    pixels.append(_pixels(path))
            except Exception:  # by format, PIL raises OSError, ValueError, SyntaxError, struct.error and others
                bad.append(str(path))
                continue
            labels.append(label)
    return pixels, labels, bad


def _pixels(path: Path) -> Pixels:
    from PIL import Image, ImageOps  # noqa: PLC0415  only for folders

    with Image.open(path) as opened:
        opened.draft("RGB", (4 * SIDE, 4 * SIDE))  # decode a large JPEG at a fraction of its size
        upright = ImageOps.exif_transpose(opened)
        if upright.mode.startswith("I;16"):  # 16-bit grey, which PIL would clip at 255: white
            upright = Image.fromarray((np.asarray(upright) >> 8).astype(np.uint8))
        coloured = upright.convert("RGB")
    square = ImageOps.fit(coloured, (SIDE, SIDE), method=Image.Resampling.BICUBIC)
    return np.asarray(square, dtype=np.uint8).transpose(2, 0, 1)


def _told(bad: list[str], n: int, folder: Path) -> str:
    more = f" and {len(bad) - _N_NAMED} more" if len(bad) > _N_NAMED else ""
    return f"{len(bad)} of {n} files in {folder} cannot be read as images: {', '.join(bad[:_N_NAMED])}{more}."
