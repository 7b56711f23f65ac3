"""How many trials share a GPU, by what one of them takes of it.

Processes on a GPU take turns: a second one fills the time in which the first sets up, not cores that it leaves idle.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_CONTEXT_BYTES = 600 * 2**20  # of a process on a GPU, beside what torch allocates
_USABLE = 0.9  # share of the memory
_MOST = 16  # trials on one GPU
_RAY_UNITS = 10_000  # that Ray divides a resource into


@dataclass(frozen=True)
class Cost:
    """Of one trial.

    Attributes:
        set_up_s: Once a worker; its next trials find what it made.
        run_s: Training and evaluations.
        n_bytes: Of its checkpoint.
        gpu_bytes: That torch takes of a GPU's memory at most; 0 on a CPU.
        gpu_total: What that GPU has.
    """

    set_up_s: float
    run_s: float
    n_bytes: int
    gpu_bytes: int = 0
    gpu_total: int = 0


def gpu_share(costs: Sequence[Cost]) -> float:
    """Of a trial, where as many share a GPU as its memory holds and its time has use for.

    Args:
        costs: Of trials that ran on it alone, among them the largest.
    """
    on_gpu = [cost for cost in costs if cost.gpu_total]
    if not on_gpu:
        return 1.0
    in_memory = min(_USABLE * cost.gpu_total // (cost.gpu_bytes + _CONTEXT_BYTES) for cost in on_gpu)
    set_up = min(cost.set_up_s for cost in on_gpu)
    run = sum(cost.run_s for cost in on_gpu) / len(on_gpu)
    in_time = (set_up + run) / run + 0.5 if run else _MOST
    n_trials = max(1, int(min(in_memory, in_time, _MOST)))
    return int(_RAY_UNITS / n_trials) / _RAY_UNITS  # rounded up by Ray, the last of seven would not fit
