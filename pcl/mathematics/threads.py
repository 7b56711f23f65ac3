"""A temporary number of torch's threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def using_threads(n: int) -> Iterator[None]:
    """Compute with `n` threads. One is best for many small steps: on a busy machine, each step waits for all threads.

    Example:
        >>> before = torch.get_num_threads()
        >>> with using_threads(1):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
