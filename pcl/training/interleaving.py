"""Several trainings in one process, in turns: on a GPU each has its own stream, so that their kernels overlap.

Whatever one training leaves idle between and within its kernels, the others use; separate processes on a GPU take turns
instead. The numbers are those of each alone: they share nothing but the device.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")


def interleaved(parts: Sequence[Iterator[T]], device: str | torch.device) -> Iterator[tuple[int, T]]:
    """Yield what iterators such as `Run.moments` yield, with their index, in turn until all have ended.

    Each is only advanced on its own stream of the device.

    Example:
        >>> list(interleaved([iter("ab"), iter("c")], "cpu"))
        [(0, 'a'), (1, 'c'), (0, 'b')]
    """
    is_gpu = torch.device(device).type == "cuda"
    left = {index: (part, torch.cuda.Stream(device) if is_gpu else None) for index, part in enumerate(parts)}
    while left:
        for index, (part, stream) in list(left.items()):
            with torch.cuda.stream(stream):  # None is the current one
                try:
                    value = next(part)
                except StopIteration:
                    del left[index]
                    continue
            yield index, value
