"""Timing of a training's batches, phase by phase, for `bench.py toy`, `cifar` and `sharing`."""

import argparse
import time
from typing import TYPE_CHECKING, Any

from launch.shared.command import chosen_device, whole_number

if TYPE_CHECKING:
    from pcl.training.run import Run

Row = dict[str, Any]

SEEDS = (4, 5, 6, 7, 8)  # of the controlled experiment


def add_arguments(parser: argparse.ArgumentParser, on_gpu: int, on_cpu: int) -> None:
    """Add the options that all share; the numbers are the batches that are timed for a row."""
    parser.add_argument("--profile", default="reference", help="fidelity profile (default: reference)")
    parser.add_argument("--scale", default=None, help="sizes: paper or quick (default: paper on a GPU, else quick)")
    parser.add_argument("--device", default=None, help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument(
        "--batches", type=whole_number, default=None,
        help=f"timed batches a row (default: {on_gpu} on a GPU, else {on_cpu})",
    )  # fmt: skip
    parser.set_defaults(timed=(on_gpu, on_cpu))


def sizes(arguments: argparse.Namespace) -> tuple[str, str, int]:
    """Return the device, the scale, and how many batches are timed."""
    device = chosen_device(arguments.device)
    on_gpu, on_cpu = arguments.timed
    is_cuda = device == "cuda"
    scale = arguments.scale or ("paper" if is_cuda else "quick")
    return device, scale, arguments.batches or (on_gpu if is_cuda else on_cpu)


def phase_row(run: "Run", index: int, n_timed: int) -> Row:
    """Time so many batches of the phase with this index, after five that build and capture what it needs."""
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
    """Format the peak memory."""
    return f"{row['peak_mib']:.0f}" if row["peak_mib"] is not None else "-"
