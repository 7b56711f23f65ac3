"""Timing of a training's batches, phase by phase, for `bench.py toy`, `cifar` and `sharing`."""

import time

import torch

from launch.benchmarks import Row
from launch.shared.command import chosen_device
from pcl.training.run import Run

SEEDS = (4, 5, 6, 7, 8)  # of the controlled experiment


def sizes(
    device: str | None, scale: str | None, batches: int | None, timed: tuple[int, int]
) -> tuple[str, str, int]:  # fmt: skip
    """Return the device, the scale, and how many batches are timed."""
    device = chosen_device(device)
    is_cuda = device == "cuda"
    return device, scale or ("paper" if is_cuda else "quick"), batches or timed[0 if is_cuda else 1]


def phase_row(run: Run, index: int, n_timed: int) -> Row:
    """Time so many batches of the phase with this index, after five that build and capture what it needs."""
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
    if is_cuda:
        torch.cuda.synchronize()


def peak(row: Row) -> str:
    """Format the peak memory."""
    return f"{row['peak_mib']:.0f}" if row["peak_mib"] is not None else "-"
