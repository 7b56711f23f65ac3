"""Several trainings in one process, in turns: on a GPU each has a stream of its own, so that their kernels overlap.

What one training leaves idle between and within its kernels, the others fill; processes on a GPU take turns instead.
Numbers are those of each alone: they share nothing but the device.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")


def interleaved(parts: Sequence[Iterator[T]], device: str | torch.device) -> Iterator[tuple[int, T]]:
    """What iterators such as `Run.moments` yield, one of each in turn until all have ended.

    Args:
        parts: Each is only ever advanced on its own stream.
        device: Where they compute.

    Yields:
        The iterator's index and what it yielded.

    Example:
        >>> list(interleaved([iter("ab"), iter("c")], "cpu"))
        [(0, 'a'), (1, 'c'), (0, 'b')]
    """
    is_gpu = torch.device(device).type == "cuda"
    left = {index: (part, torch.cuda.Stream(device) if is_gpu else None) for index, part in enumerate(parts)}
    while left:
        for index, (part, stream) in list(left.items()):
            with torch.cuda.stream(stream):  # None is the one that is current
                try:
                    value = next(part)
                except StopIteration:
                    del left[index]
                    continue
            yield index, value
