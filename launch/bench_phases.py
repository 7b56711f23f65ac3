"""What a batch of a training costs, phase by phase: shared by `bench.py toy` and `bench.py cifar`."""

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pcl.training import Run

Row = dict[str, Any]


def phase_row(run: "Run", index: int, n_timed: int) -> Row:
    """Time so many batches of the phase with this index: after five that build and capture what it needs."""
    import torch  # noqa: PLC0415

    is_cuda = run.device.type == "cuda"
    training = run.config.training
    phase = training.phases[index]
    if is_cuda:
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    run.stepper.enter(phase.trained, training.negatives_at(index))
    run.stepper.advance(5, training.lr)
    synchronize(is_cuda)
    first = time.perf_counter() - started
    started = time.perf_counter()
    run.stepper.advance(n_timed, training.lr)
    synchronize(is_cuda)
    return {
        "phase": phase.trained.value,
        "ms_per_batch": 1e3 * (time.perf_counter() - started) / n_timed,
        "peak_mib": torch.cuda.max_memory_allocated() / 2**20 if is_cuda else None,
        "first_batches_s": first,
    }


def synchronize(is_cuda: bool) -> None:
    """Wait for the device."""
    import torch  # noqa: PLC0415

    if is_cuda:
        torch.cuda.synchronize()


def peak(row: Row) -> str:
    """Peak memory as it is shown."""
    return f"{row['peak_mib']:.0f}" if row["peak_mib"] is not None else "-"
