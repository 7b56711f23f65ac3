"""Several trainings in one process, in turns: on a GPU each has its own stream, so that their kernels overlap.

The others use the time that one training leaves idle between and within its kernels; separate processes on a GPU would
take turns instead. Each training gives the same numbers as alone: they share nothing but the device.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

import torch

T = TypeVar("T")


def interleaved(parts: Sequence[Iterator[T | None]], device: str | torch.device) -> Iterator[tuple[int, T | None]]:
    """Yield what iterators such as `Run.moments` yield, with their index, until all have ended.

    Each is only advanced on its own stream of the device, and has its turn until it yields None: the device then has
    work from it. A turn that ended with a report would leave the device idle while the others make theirs.

    Example:
        >>> list(interleaved([iter(["a", None, "b"]), iter([None, "c"])], "cpu"))
        [(0, 'a'), (0, None), (1, None), (0, 'b'), (1, 'c')]
    """
    is_gpu = torch.device(device).type == "cuda"
    left = {index: (part, torch.cuda.Stream(device) if is_gpu else None) for index, part in enumerate(parts)}
    while left:
        for index, (part, stream) in list(left.items()):
            while True:
                with torch.cuda.stream(stream):  # None is the current one
                    try:
                        value = next(part)
                    except StopIteration:
                        del left[index]
                        break
                yield index, value
                if value is None:
                    break
