"""Conversion of images, encoded bytes or arrays of pixels of any size, to the inputs of an encoder.

Axes: N images, H, W pixels.
"""

import math
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pcl.data.folder import TooLarge, decoded, fitted
from pcl.data.images import SIDE

FORMATS = ("PNG", "JPEG", "WEBP", "BMP")
MOST_BYTES = 20 * 2**20  # of an encoded image
_CHUNK = 16  # images that a thread decodes at a time; PIL decodes without Python's lock
_THREADS = min(8, torch.get_num_threads())  # at most: each may hold the 200 MB of a largest image


def pictures(images: Iterable[object], side: int = SIDE, first: int = 0) -> Tensor:
    """Return images, each encoded bytes or pixels (H, W, 3), as uint8 (N, 3, side, side), resized as in training.

    Raises:
        ValueError: If there are none, or one is not an image; the message has its number, counted from `first`.

    Example:
        >>> pictures([np.zeros((48, 64, 3), dtype=np.uint8)]).shape
        torch.Size([1, 3, 32, 32])
    """
    placed = list(enumerate(images, first))
    if not placed:
        raise ValueError("At least one image must be given, but got none.")
    parts = [placed[start : start + _CHUNK] for start in range(0, len(placed), _CHUNK)]
    # PIL's warnings, about transparency, sizes and EXIF, are ignored here: each thread would restore them for all.
    with warnings.catch_warnings(action="ignore"), ThreadPoolExecutor(_THREADS) as pool:
        work = partial(_pictures, side=side)
        made = pool.map(work, parts) if len(parts) > 1 else map(work, parts)
        return torch.from_numpy(np.concatenate(list(made)))


def _pictures(placed: Sequence[tuple[int, object]], side: int) -> NDArray[np.uint8]:
    return np.stack([_picture(place, image, side) for place, image in placed])


def _picture(place: int, image: object, side: int) -> NDArray[np.uint8]:
    if isinstance(image, bytes | bytearray | memoryview):
        return _decoded(place, bytes(image), side)
    if isinstance(image, np.ndarray | list | tuple | Tensor):
        return fitted(_pixels(place, image), side)
    raise ValueError(f"Image {place} must be the bytes of an image file or an array of pixels, but is {_kind(image)}.")


def _decoded(place: int, content: bytes, side: int) -> NDArray[np.uint8]:
    """Decode an image file, whose size is checked before its pixels are read."""
    if len(content) > MOST_BYTES:
        most = f"{MOST_BYTES // 2**20} MiB"
        raise ValueError(f"Image {place} must have at most {most}, but has {len(content) / 2**20:.0f} MiB.")
    try:
        return decoded(BytesIO(content), side, FORMATS)
    except TooLarge as error:
        raise ValueError(f"Image {place} must have {error}.") from None
    except Exception:  # by format, PIL raises OSError, ValueError, SyntaxError, struct.error and others
        known = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise ValueError(f"Image {place} must be a {known} file, but cannot be read as one.") from None


def _pixels(place: int, image: Any) -> NDArray[np.uint8]:
    try:
        pixels = np.asarray(image)
    except ValueError:  # lists of different lengths
        raise ValueError(f"Image {place} must have rows of equal length, of pixels with three colours.") from None
    is_whole = pixels.dtype.kind in "iu"
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size or not is_whole:
        got = f"{pixels.dtype} {pixels.shape}"
        raise ValueError(f"Image {place} must be whole numbers from 0 to 255 of shape (H, W, 3), but got {got}.")
    if pixels.dtype != np.uint8 and not 0 <= pixels.min() <= pixels.max() <= 255:
        raise ValueError(f"Image {place} must have numbers from 0 to 255, but has {pixels.min()} to {pixels.max()}.")
    return pixels.astype(np.uint8)


def _kind(image: object) -> str:
    is_missing = image is None or (isinstance(image, float) and math.isnan(image))  # as pandas fills gaps
    return "missing" if is_missing else f"of the type {type(image).__name__}"
