"""Time and memory of a training's phases and of this process; a benchmark's table as JSON, with the hardware."""

import datetime
import json
import os
import platform
import time
from pathlib import Path

import numpy as np
import scipy
import torch

import pcl
from launch.benchmarks import Row
from launch.shared.command import chosen_device
from pcl.storage.files import replacing
from pcl.training.run import Run


def sizes(
    device: str | None, scale: str | None, batches: int | None, timed: tuple[int, int]
) -> tuple[str, str, int]:  # fmt: skip
    """Return the device, the scale and the number of timed batches."""
    device = chosen_device(device)
    is_cuda = device == "cuda"
    return device, scale or ("paper" if is_cuda else "quick"), batches or timed[0 if is_cuda else 1]


def phase_row(run: Run, index: int, n_timed: int) -> Row:
    """Time `n_timed` batches of the phase with this index, after five batches for building and capturing."""
    device, training = run.device.type, run.config.training
    phase = training.phases[index]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    started = time.perf_counter()
    run.stepper.enter(phase.trained, training.negatives_at(index))
    run.stepper.advance(5, training.lr)
    synchronize(device)
    first = time.perf_counter() - started
    started = time.perf_counter()
    run.stepper.advance(n_timed, training.lr)
    synchronize(device)
    ms = 1e3 * (time.perf_counter() - started) / n_timed
    memory = peak_mib(device) if device == "cuda" else None
    return {"phase": phase.trained.value, "ms_per_batch": ms, "peak_mib": memory, "first_batches_s": first}


def synchronize(device: str) -> None:
    """Wait for the device."""
    if device == "cuda":
        torch.cuda.synchronize()


def peak_mib(device: str) -> float:
    """Return the peak memory so far: of the CUDA allocator, or resident in this process."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    import resource  # noqa: PLC0415  Windows lacks it

    found = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return found / 2**20 if platform.system() == "Darwin" else found / 2**10


def peak(row: Row) -> str:
    """Format the peak memory."""
    return f"{row['peak_mib']:.0f}" if row["peak_mib"] is not None else "-"


def write_record(path: Path, benchmark: str, rows: list[Row]) -> None:
    """Write a benchmark's rows with the circumstances of their measurement."""
    content = {"benchmark": benchmark, **circumstances(), "rows": rows}
    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2) + "\n")


def circumstances() -> Row:
    """Return the date, the hardware and the versions."""
    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    modules = {"pcl": pcl, "torch": torch, "numpy": np, "scipy": scipy}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": {"cpu": cpu, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "gpu": gpu},
        "versions": {"python": platform.python_version(), **{n: m.__version__ for n, m in modules.items()}},
    }
