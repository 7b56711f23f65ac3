"""Annotators' votes on the images of a folder: its file votes.csv, with the columns image, label and votes.

Axes: C classes.
"""

import csv
import io
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import torch
from torch import Tensor

VOTES = "votes.csv"
_COLUMNS = ["image", "label", "votes"]


class Vote(NamedTuple):
    """A row of the file."""

    line: int  # its last line in the file
    image: str  # path inside the folder, with `/` between parts
    label: str
    n_votes: int


def read_votes(path: Path) -> list[Vote]:
    """Read the rows of a file; empty lines are left out.

    Raises:
        ValueError: If it is not such a table; the message names file and line.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")  # with or without a byte order mark, which spreadsheets write
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be a CSV file in UTF-8, but is not.") from None
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        head = [name.strip() for name in next(rows, [])]
        if head != _COLUMNS:
            raise ValueError(f"{path}, line 1, must be {','.join(_COLUMNS)!r}, but is {','.join(head)!r}.")
        found = [_vote(path, rows.line_num, row) for row in rows if any(cell.strip() for cell in row)]
    except csv.Error as error:
        raise ValueError(f"{path}, line {rows.line_num}, is not CSV ({error}).") from None
    if not found:
        raise ValueError(f"{path} must have a row for each image and label, but has none.")
    return found


def _vote(path: Path, line: int, row: Sequence[str]) -> Vote:
    if len(row) != len(_COLUMNS):
        raise ValueError(f"{path}, line {line}, must have image, label and votes, but has {len(row)} values.")
    image, label, votes = (cell.strip() for cell in row)
    if not image or not label:
        raise ValueError(f"{path}, line {line}, must name an image and a label, but one is empty.")
    if not (votes.isascii() and votes.isdigit() and len(votes) <= 9):
        raise ValueError(f"{path}, line {line}, must have a whole number of votes, at least 0, but has {votes!r}.")
    return Vote(line, PurePosixPath(image).as_posix(), label, int(votes))


def shares_of(path: Path, votes: Sequence[Vote], images: Collection[str], classes: Sequence[str]) -> dict[str, Tensor]:
    """Return the share of each class in an image's votes, float32 (C,), by image; rows about the same image add up.

    Raises:
        ValueError: If a row is about an unknown image or class, or all rows of an image have 0 votes.
    """
    known, counts = frozenset(images), dict[str, Tensor]()
    places = {name: place for place, name in enumerate(classes)}
    first = dict[str, int]()
    for line, image, label, n_votes in votes:
        if image not in known:
            raise ValueError(f"{path}, line {line}, is about {image!r}, but {path.parent} has no such file.")
        if label not in places:
            raise ValueError(f"{path}, line {line}, has the label {label!r}, but the classes are {', '.join(classes)}.")
        counts.setdefault(image, torch.zeros(len(classes), dtype=torch.float64))[places[label]] += n_votes
        first.setdefault(image, line)
    for image, of_image in counts.items():
        if not of_image.any():
            raise ValueError(f"{path}, line {first[image]}, begins the rows about {image!r}, but all have 0 votes.")
    return {image: (of_image / of_image.sum()).float() for image, of_image in counts.items()}


def labels_of(votes: Sequence[Vote]) -> list[str]:
    """Return all labels, sorted."""
    return sorted({vote.label for vote in votes})
