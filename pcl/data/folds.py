"""Five folds of a set's images, fixed by a seed. CIFAR-10H uses others by default: `pcl.data.authors_folds`.

Images are ordered by the hashes of `seed/index`, without any library's random numbers, so that the order never changes.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

N_FOLDS = 5


class Split(NamedTuple):
    """Disjoint indices of images, int64."""

    train: Tensor
    validation: Tensor
    test: Tensor


def folds(n: int, seed: int = 0) -> tuple[Tensor, ...]:
    """Return five disjoint sets of indices that cover all n images, each ascending; sizes differ by at most one.

    Runs use the seed 0.

    Example:
        >>> [part.tolist() for part in folds(10)]
        [[0, 4], [6, 9], [2, 7], [1, 5], [3, 8]]
    """
    if n < N_FOLDS:
        raise ValueError(f"`n >= {N_FOLDS}` images must be given for {N_FOLDS} folds, but got {n}.")
    order = sorted(range(n), key=lambda index: hashlib.sha256(f"{seed}/{index}".encode()).digest())
    return tuple(part.sort().values for part in torch.tensor(order).tensor_split(N_FOLDS))


def split(n: int, fold: int, seed: int = 0) -> Split:
    """Return fold f of `folds` (see `split_of`), with ascending indices."""
    return Split(*(part.sort().values for part in split_of(folds(n, seed), fold)))


def split_of(parts: Sequence[Tensor], fold: int) -> Split:
    """Return fold f: it trains on the sets f, f + 1 and f + 2, validates on f + 3 and tests on f + 4, modulo five."""
    if not 0 <= fold < N_FOLDS:
        raise ValueError(f"`0 <= fold <= {N_FOLDS - 1}` must hold, but got {fold}.")
    a, b, c, validation, test = (parts[(fold + step) % N_FOLDS] for step in range(N_FOLDS))
    return Split(torch.cat((a, b, c)), validation, test)
