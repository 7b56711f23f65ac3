"""Limits in seconds that hold on any machine: they are those of the machine that they were set on, times how slow
this one is, which other work beside the tests can make slower too."""

import time
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

_USUAL_S = 0.04  # of `_work`, on one of two shared x86_64 cores, with nothing beside it


def within(limit_s: float, work: Callable[[], T]) -> T:
    """What a function returns, which has to take less than this of the process's own time."""
    before = _slowness()
    start = time.process_time()
    result = work()
    seconds = time.process_time() - start
    slowness = max(before, _slowness())
    print(f"{seconds:.2f} s, where all takes {slowness:.1f} times as long as usual")
    assert seconds < limit_s * slowness
    return result


def limit(limit_s: float) -> float:
    """Return a limit in seconds of processor time, for what another process took, on this machine as it is now."""
    return limit_s * _slowness()


def _slowness() -> float:
    """How many times as long as usual things take here; 1 where they take less."""
    return max(1.0, min(map(_seconds, range(3))) / _USUAL_S)


def _seconds(seed: int) -> float:
    start = time.process_time()
    _work(seed)
    return time.process_time() - start


def _work(seed: int) -> None:
    """Some of what tests of speed do: small objects and texts, sorting, products."""
    words = sorted(f"{number % 977:x}" for number in range(40_000))
    assert len("".join(words)) > 40_000
    values = torch.rand(200_000, generator=torch.Generator().manual_seed(seed))
    assert values.sort().values[0] >= 0
    square = values[:160_000].view(400, 400)
    assert (square @ square).shape == square.shape
