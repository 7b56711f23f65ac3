"""`bench.py loss`: time and peak memory of the losses, compared with MCInfoNCE with whole samples in memory.

Axes: S samples, B anchors, N negatives, D dim.
"""

import multiprocessing
import signal
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from launch.benchmarks import Row
from launch.benchmarks.measurement import peak_mib, synchronize
from launch.shared.command import chosen_device, say
from pcl.distributions import VonMisesFisher
from pcl.losses import LOSSES, Loss, mc_info_nce


def measure(
    *, samples: int, batch_size: int, negatives: int, dim: int, device: str | None, repeats: int
) -> list[Row]:  # fmt: skip
    """Time forward and backward of each loss, in a process of its own to measure its own peak memory."""
    device = chosen_device(device)
    sizes = {"n_samples": samples, "batch_size": batch_size, "n_negatives": negatives, "dim": dim}
    settings = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    say(f"{settings}, float32, {device}, median of {repeats} calls")
    say(f"{'loss':<34}{'forward ms':>12}{'backward ms':>13}{'peak MiB':>10}")
    rows: list[Row] = []
    # This process handles Ctrl-C; leaving the block ends the other.
    ignore_interrupt = (signal.SIGINT, signal.SIG_IGN)
    with multiprocessing.get_context("spawn").Pool(1, signal.signal, ignore_interrupt, maxtasksperchild=1) as pool:
        for name in ("mc_info_nce", "mc_info_nce, whole samples", "hib", "elk", "info_nce"):
            row = pool.apply(measure_loss, (name, sizes, device, repeats))
            rows.append(row)
            say(f"{name:<34}{row['forward_ms']:>12.1f}{row['backward_ms']:>13.1f}{row['peak_mib']:>10.0f}")
    ours, twin = rows[0], rows[1]
    speed = (twin["forward_ms"] + twin["backward_ms"]) / (ours["forward_ms"] + ours["backward_ms"])
    memory = twin["peak_mib"] / max(ours["peak_mib"], 1.0)  # a resident set is only known to about a MiB
    say(f"whole samples take {speed:.1f} times the time and {memory:.1f} times the memory of mc_info_nce")
    return rows


def measure_loss(name: str, sizes: dict[str, int], device: str, repeats: int) -> Row:
    """Return time and peak memory of one loss in this process."""

    def loss_of(n_samples: int) -> Callable[..., torch.Tensor]:
        if name not in LOSSES:
            return partial(mc_info_nce_of_whole_samples, n_samples=n_samples, kappa_pos=20.0)
        config: Any = LOSSES[name].Config
        is_sampled = "n_samples" in config.__dataclass_fields__
        built: Loss = (config(n_samples=n_samples) if is_sampled else config()).build()
        return built.to(device)

    def posterior(*batch: int) -> VonMisesFisher:
        mu = torch.nn.functional.normalize(torch.randn(*batch, sizes["dim"], device=device), dim=-1)
        kappa = torch.full(batch, 20.0, device=device)
        return VonMisesFisher(mu.requires_grad_(), kappa.requires_grad_(), validate_args=False)

    def step(n_samples: int, batch_size: int, n_negatives: int) -> tuple[float, float]:
        triple = posterior(batch_size), posterior(batch_size), posterior(batch_size, n_negatives)
        loss = loss_of(n_samples)
        synchronize(device)
        start = time.perf_counter()
        value = loss(*triple).mean()
        synchronize(device)
        middle = time.perf_counter()
        value.backward()
        synchronize(device)
        return 1e3 * (middle - start), 1e3 * (time.perf_counter() - middle)

    step(2, 2, 1)  # so that tables and lazy initialisation do not count
    before = peak_mib(device)
    times = [step(sizes["n_samples"], sizes["batch_size"], sizes["n_negatives"]) for _ in range(repeats)]
    forward, backward = (statistics.median(values) for values in zip(*times, strict=True))
    peak = peak_mib(device) - before
    return {"loss": name, **sizes, "device": device, "forward_ms": forward, "backward_ms": backward, "peak_mib": peak}


def mc_info_nce_of_whole_samples(
    anchor: VonMisesFisher, positive: VonMisesFisher, negatives: VonMisesFisher, n_samples: int, kappa_pos: float
) -> Tensor:
    """MCInfoNCE with every sample of every posterior in memory, (S, B, N, D) for the negatives: (B,)."""
    z, z_positive, z_negatives = (d.rsample((n_samples,)) for d in (anchor, positive, negatives))
    similar = kappa_pos * (z * z_positive).sum(-1)
    dissimilar = kappa_pos * (z.unsqueeze(2) * z_negatives).sum(-1)
    return mc_info_nce(similar, dissimilar, positive_weight=1 / negatives.batch_shape[-1])
