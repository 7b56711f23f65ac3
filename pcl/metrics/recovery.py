"""Agreement of predictions with the truth: RMSE, MAE and Spearman's rank correlation, with exact ranks.

For mu, whose coordinates are only defined up to a rotation, all pairwise cosines are compared: 5e7 pairs of 10,000
points. They are never all held as a matrix, and their ranks are exact, ties averaged.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Rows of the cosine matrix computed at once: 10,000 points give blocks of 5e6 numbers, 20 MB.
_BLOCK_ROWS = 512
# Sorted pairs ranked at once on a CPU: 1 MiB.
_PIECE = 2**17
# Numbers sorted at once on an accelerator: a sort needs five times its input, here 0.2 GB.
_SORT_LENGTH = 2**23


class Recovery(NamedTuple):
    """Agreement of predictions with the truth."""

    rmse: float  # root of the mean squared error
    mae: float  # mean absolute error
    rank_corr: float  # Spearman's rank correlation; NaN where one side is constant or holds a NaN


def compare(predicted: Tensor, true: Tensor) -> Recovery:
    """Compare two vectors of equal length, such as kappa or spread at n points.

    Example:
        >>> compare(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 3.0, 3.5])).mae
        0.5
    """
    if predicted.ndim != 1 or predicted.shape != true.shape:
        raise ValueError(f"Both vectors must have the same length, but got {_shapes(predicted, true)}.")
    if len(predicted) < 2:
        raise ValueError(f"At least 2 points must be given, but got {len(predicted)}.")
    error = predicted.double() - true.double()
    return Recovery(
        rmse=error.square().mean().sqrt().item(), mae=error.abs().mean().item(), rank_corr=spearman(predicted, true)
    )


def spearman(a: Tensor, b: Tensor) -> float:
    """Return Spearman's rank correlation of two vectors, ties averaged; NaN where one is constant or holds a NaN."""
    if a.isnan().any() or b.isnan().any():
        return math.nan
    ranks_a, ranks_b = ((_doubled_ranks(v.contiguous(), [v.sort().values]) - (len(v) + 1)).double() for v in (a, b))
    return _correlation(ranks_a @ ranks_b, ranks_a @ ranks_a, ranks_b @ ranks_b)


def compare_pairs(mu: Tensor, mu_true: Tensor) -> Recovery:
    """Compare mu_i.mu_j of unit vectors (n, D') with the true ones, (n, D), over all pairs i < j."""
    if mu.ndim != 2 or mu_true.ndim != 2 or len(mu) != len(mu_true):
        raise ValueError(f"Both sets must have the same number of vectors, but got {_shapes(mu, mu_true)}.")
    if len(mu) < 3:
        raise ValueError(f"At least 3 points must be given, but got {len(mu)}.")
    pairs = _PairsByPackedSort() if mu.device.type == "cpu" else _PairsByCounting()
    squared = absolute = torch.zeros((), dtype=torch.float64, device=mu.device)
    n_pairs = 0
    for predicted, true in _paired_cosines(mu.float(), mu_true.to(mu.device).float()):
        error = predicted - true
        squared = squared + error.square().sum(dtype=torch.float64)
        absolute = absolute + error.abs().sum(dtype=torch.float64)
        n_pairs += len(error)
        pairs.add(predicted, true)
    return Recovery(
        rmse=math.sqrt(squared.item() / n_pairs),
        mae=absolute.item() / n_pairs,
        rank_corr=pairs.spearman() if math.isfinite(absolute.item()) else math.nan,
    )


def _paired_cosines(mu: Tensor, mu_true: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield cosines of all pairs i < j, predicted and true, in blocks."""
    for start in range(0, len(mu), _BLOCK_ROWS):
        end = min(start + _BLOCK_ROWS, len(mu))
        upper = torch.ones(end - start, end - start, dtype=torch.bool, device=mu.device).triu(diagonal=1)
        sides = mu, mu_true
        predicted, true = ((v[start:end] @ v[start:end].T)[upper] for v in sides)
        yield predicted, true
        predicted, true = ((v[start:end] @ v[end:].T).flatten() for v in sides)
        yield predicted, true


class _PairsByPackedSort:
    """Rank correlation of pairs on a CPU, by two sorts of 64-bit integers, which NumPy vectorises.

    Each integer holds two 32-bit numbers. Sorting by (key of a, key of b) gives the ranks of a, next to the keys of b.
    Sorting by (key of b, doubled rank of a) gives the ranks of b, next to those of a. No lookup is out of order.
    """

    def __init__(self) -> None:
        self.packed: list[NDArray[np.uint64]] = []

    def add(self, a: Tensor, b: Tensor) -> None:
        self.packed.append(_order_key(a) << np.uint64(32) | _order_key(b))

    def spearman(self) -> float:
        packed = np.concatenate(self.packed)
        self.packed.clear()
        packed.sort()
        center = len(packed) + 1
        squares_a = squares_b = product = 0.0
        for part, ranks_a in _runs(packed):
            centred = ranks_a.astype(np.float64) - center
            squares_a += _dot(centred, centred)
            np.left_shift(part, np.uint64(32), out=part)
            np.bitwise_or(part, ranks_a, out=part)
        packed.sort()
        for part, ranks_b in _runs(packed):
            centred = ranks_b.astype(np.float64) - center
            squares_b += _dot(centred, centred)
            product += _dot(centred, (part & np.uint64(0xFFFFFFFF)).astype(np.float64) - center)
        return _correlation(product, squares_a, squares_b)


class _PairsByCounting:
    """Rank correlation of pairs on an accelerator: a doubled rank is 1 + (number smaller) + (number not larger).

    Counting in several sorted pieces avoids a sort of the whole, whose working memory would be five times as large.
    """

    def __init__(self) -> None:
        self.sides: tuple[list[Tensor], list[Tensor]] = ([], [])

    def add(self, a: Tensor, b: Tensor) -> None:
        for side, values in zip(self.sides, (a, b), strict=True):
            side.append(values)

    def spearman(self) -> float:
        a, b = (torch.cat(side) for side in self.sides)
        self.sides = ([], [])
        sorted_a, sorted_b = ([piece.sort().values for piece in side.split(_SORT_LENGTH)] for side in (a, b))
        sums = torch.zeros(3, dtype=torch.float64, device=a.device)
        for values_a, values_b in zip(a.split(_SORT_LENGTH), b.split(_SORT_LENGTH), strict=True):
            x, y = (
                (_doubled_ranks(values, pieces) - (len(a) + 1)).double()
                for values, pieces in ((values_a, sorted_a), (values_b, sorted_b))
            )
            sums += torch.stack([x @ y, x @ x, y @ y])
        return _correlation(*sums.tolist())


def _dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(np.einsum("i,i->", a, b))  # unlike a @ b, it starts no threads for a vector that fits the cache


def _order_key(values: Tensor) -> NDArray[np.uint64]:
    """Return the bits of float32 numbers, rearranged so that they sort as the numbers do."""
    bits = (values + 0.0).numpy().view(np.uint32)  # -0 becomes 0: they are equal, but their bits are not
    negative = bits >> np.uint32(31)
    return (bits ^ (np.uint32(0x80000000) | (np.uint32(0) - negative))).astype(np.uint64)


def _runs(packed: NDArray[np.uint64]) -> Iterator[tuple[NDArray[np.uint64], NDArray[np.uint64]]]:
    """Yield cache-sized pieces of sorted numbers and the doubled ranks of their upper halves, ties averaged."""
    start = 0
    while start < len(packed):
        end = min(start + _PIECE, len(packed))
        beyond_last_tie = (packed[end - 1] >> np.uint64(32)) + np.uint64(1) << np.uint64(32)
        end += int(np.searchsorted(packed[end:], beyond_last_tie))
        high = packed[start:end] >> np.uint64(32)
        first = np.flatnonzero(np.concatenate([[True], high[1:] != high[:-1]]))
        lengths = np.diff(first, append=len(high))
        doubled = (2 * (start + first) + lengths + 1).astype(np.uint64)
        yield packed[start:end], np.repeat(doubled, lengths)
        start = end


def _doubled_ranks(values: Tensor, sorted_pieces: list[Tensor]) -> Tensor:
    """Return 1 + (number of smaller values in all pieces) + (number not larger): twice the average rank."""
    ranks = torch.ones(len(values), dtype=torch.int64, device=values.device)
    for piece in sorted_pieces:
        ranks += torch.searchsorted(piece, values)
        ranks += torch.searchsorted(piece, values, right=True)
    return ranks


def _correlation(product: Tensor | float, squares_a: Tensor | float, squares_b: Tensor | float) -> float:
    scale = math.sqrt(float(squares_a)) * math.sqrt(float(squares_b))
    return float(product) / scale if scale > 0 else math.nan


def _shapes(a: Tensor, b: Tensor) -> str:
    return f"{tuple(a.shape)} and {tuple(b.shape)}"
