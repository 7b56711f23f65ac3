"""Resources of trials, and how many trials share a GPU, given the cost of one.

Processes on a GPU take turns: a second one fills the time in which the first sets up, not cores that it leaves idle.
Under NVIDIA's MPS, a service that an administrator starts, they share the cores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

_CONTEXT_BYTES = 600 * 2**20  # of a process on a GPU, besides what torch allocates
_USABLE = 0.9  # share of the memory
_MOST = 16  # trials on one GPU
_UNDER_MPS, _MPS_GAIN = 4, 1.55  # processes that keep a GPU busy, and how much more they get done: 36 trials on an H200
_LEAST_GAIN = 1.1  # for which more trials in a process are worth it
_RAY_UNITS = 10_000  # that Ray divides a resource into


@dataclass(frozen=True)
class Demand:
    """The trials that a study can have running at once."""

    n_trials: int = 1
    is_groupable: bool = True  # whether a worker may train several of them side by side


ONE = Demand()


@dataclass(frozen=True)
class Resources:
    """CPUs and GPUs of a worker."""

    cpus: float = 1.0
    gpus: float = 0.0  # devices, or a share of one
    most_at_once: int = 0  # bound on trials that run at once; 0 for as many as fit
    side_by_side: int = 1  # trials that one worker trains at once and that share its resources
    start_s: float = 15.0  # seconds until the first worker begins: of Ray, and of torch in it

    def slots(self, available: dict[str, float]) -> int:
        """Return how many trials run at once on a cluster."""
        slots = [available.get("CPU", 0.0) / self.cpus] if self.cpus else []
        slots += [available.get("GPU", 0.0) / self.gpus] if self.gpus else []
        n_slots = self.side_by_side * (int(min(slots) + 1e-9) if slots else 1)
        return min(n_slots, self.most_at_once) if self.most_at_once else n_slots

    def groups(self, n_trials: int, slots: int) -> tuple[int, int]:
        """Return how many trials a worker trains side by side, and how many workers there are; 0 for all that fit.

        A worker takes more than one trial only if every slot has one.
        """
        n_workers = max(1, slots // self.side_by_side)
        size = max(1, min(self.side_by_side, -(-n_trials // n_workers), self.most_at_once or self.side_by_side))
        return size, max(1, self.most_at_once // size) if self.most_at_once else 0

    def require(self, available: dict[str, float]) -> None:
        """Raise a ValueError unless at least one trial fits: Ray itself would wait for ever."""
        if self.slots(available) < 1:
            raise ValueError(
                f"A trial asks for {self.cpus:g} CPUs and {self.gpus:g} GPUs, but the cluster has "
                f"{available.get('CPU', 0):g} and {available.get('GPU', 0):g}; give a trial fewer CPUs or GPUs."
            )


@dataclass(frozen=True)
class Cost:
    """Time and memory of one trial."""

    set_up_s: float  # once per worker; its next trials reuse it
    run_s: float  # training and evaluations
    n_bytes: int  # of its checkpoint
    gpu_bytes: int = 0  # that torch takes of a GPU's memory at most; 0 on a CPU
    gpu_total: int = 0  # what that GPU has
    side_by_side: int = 1  # number of trials in one process that gets most done
    gain: float = 1.0  # how much they get done, relative to one
    has_mps: bool = False  # whether that GPU's processes share its cores
    slowest: float = 1.0  # slow measured batches over fast ones; above 1 on a busy machine

    def shared_run_s(self, resources: Resources) -> float:
        """Return the seconds of training and evaluations alongside the others of its worker, or of its GPU."""
        if resources.side_by_side > 1:
            return self.run_s * resources.side_by_side / self.gain
        if 0 < resources.gpus < 1:
            return self.run_s * int(1 / resources.gpus + 1e-9) / (_MPS_GAIN if self.has_mps else 1)
        return self.run_s


def with_side_by_side(cost: Cost, seconds_of: Callable[[int], float]) -> Cost:
    """Return a trial's cost with 1, 2 or 4 trainings in a process: several only if that gets a tenth more done.

    `seconds_of` returns the seconds that so many take together for the same work each. Under MPS there is nothing to
    gain: all kernels of a process wait for each other (measured: 1.01).
    """
    if cost.has_mps:
        return cost
    alone = 1 / seconds_of(1)
    best, rate = 1, alone
    for n_trials in (2, 4):
        if n_trials * cost.gpu_bytes > _USABLE * cost.gpu_total:
            break
        if (new := n_trials / seconds_of(n_trials)) < _LEAST_GAIN * rate:
            break
        best, rate = n_trials, new
    return replace(cost, side_by_side=best, gain=rate / alone)


def gpu_share(costs: Sequence[Cost], most: int = _MOST) -> float:
    """Return a trial's share of a GPU: as many share it as fit its memory and keep it busy, at most `most`.

    The costs are of trials that ran on it alone.
    """
    on_gpu = [cost for cost in costs if cost.gpu_total]
    if not on_gpu:
        return 1.0
    in_memory = min(_USABLE * cost.gpu_total // (cost.gpu_bytes + _CONTEXT_BYTES) for cost in on_gpu)
    set_up = min(cost.set_up_s for cost in on_gpu)
    run = sum(cost.run_s for cost in on_gpu) / len(on_gpu)
    in_time = (set_up + run) / run + 0.5 if run else _MOST
    if all(cost.has_mps for cost in on_gpu):
        in_time = max(in_time, _UNDER_MPS)
    n_trials = max(1, int(min(in_memory, in_time, most, _MOST)))
    return int(_RAY_UNITS / n_trials) / _RAY_UNITS  # rounded down: if Ray rounded up, the last of seven would not fit
