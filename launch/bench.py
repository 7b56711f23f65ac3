"""Benchmarks: `python launch/bench.py vmf`, `loss`, `toy`, `cifar`, `sharing`, `study`, `search`, `faults`, `load`.

Each prints a table and writes it, with the hardware and the versions, as JSON.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import platform
import signal
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from launch.benchmarks import cifar as bench_cifar
from launch.benchmarks import faults as bench_faults
from launch.benchmarks import load as bench_load
from launch.benchmarks import search as bench_search
from launch.benchmarks import sharing as bench_sharing
from launch.benchmarks import study as bench_study
from launch.benchmarks import toy as bench_toy
from launch.shared.command import Parser, chosen_device, run, say, whole_number

Row = dict[str, Any]

_WARM_UP = 3  # calls before the timed ones: the first builds tables; with one alone, the first rows were a third slower


def main() -> None:
    """Parse the command line and run one benchmark."""
    parser = Parser(prog="bench.py", description=__doc__.splitlines()[0] if __doc__ else None)
    benchmarks = parser.add_subparsers(dest="benchmark", required=True)
    vmf = benchmarks.add_parser("vmf", help="von Mises-Fisher sampling on one CPU thread, against SciPy and rejection")
    vmf.add_argument("--samples", type=whole_number, default=1_000_000, help="samples a call (default: a million)")
    vmf.add_argument("--dim", type=whole_number, default=10, help="dimension (default: 10)")
    loss = benchmarks.add_parser("loss", help="time and peak memory of the losses, against whole samples in memory")
    loss.add_argument("--samples", type=whole_number, default=512, help="Monte-Carlo samples K (default: 512)")
    loss.add_argument("--batch-size", type=whole_number, default=512, help="anchors (default: 512)")
    loss.add_argument("--negatives", type=whole_number, default=32, help="negatives M per anchor (default: 32)")
    loss.add_argument("--dim", type=whole_number, default=10, help="dimension (default: 10)")
    loss.add_argument("--device", default=None, help="cpu or cuda (default: cuda where there is one)")
    toy = benchmarks.add_parser("toy", help="a batch of the controlled experiment, fast path against plain twin")
    bench_toy.add_arguments(toy)
    cifar = benchmarks.add_parser("cifar", help="a batch of images and its parts, an evaluation, a whole fold")
    bench_cifar.add_arguments(cifar)
    sharing = benchmarks.add_parser("sharing", help="trials side by side in one process, against one alone")
    bench_sharing.add_arguments(sharing)
    study = benchmarks.add_parser("study", help="what the service costs: trials that do nothing, and a real grid")
    bench_study.add_arguments(study)
    search = benchmarks.add_parser("search", help="trials and time until a search has found the best, on a table")
    bench_search.add_arguments(search)
    faults = benchmarks.add_parser("faults", help="what studies lose when nodes, networks, drivers and MLflow fail")
    bench_faults.add_arguments(faults)
    load = benchmarks.add_parser("load", help="a thousand trials of a second on three nodes, and ten thousand records")
    bench_load.add_arguments(load)
    for command in (vmf, loss):
        command.add_argument("--repeats", type=whole_number, default=5, help="timed calls a row (default: 5)")
    for command in (vmf, loss, toy, cifar, sharing, study, search, faults, load):
        command.add_argument("--output", type=Path, default=None, help="JSON file (default: runs/bench/NAME.json)")
    arguments = parser.parse_args()
    if arguments.benchmark in ("vmf", "loss") and arguments.dim < 2:
        raise ValueError(f"`--dim >= 2` must hold, but got {arguments.dim}.")
    output = arguments.output or Path("runs") / "bench" / f"{arguments.benchmark}.json"
    if output.is_dir():
        raise ValueError(f"`--output` must name a file, but {output} is a folder.")
    output.parent.mkdir(parents=True, exist_ok=True)
    measures = {
        "vmf": _vmf, "loss": _loss, "toy": bench_toy.measure, "cifar": bench_cifar.measure,
        "sharing": bench_sharing.measure, "study": bench_study.measure, "search": bench_search.measure,
        "faults": bench_faults.measure, "load": bench_load.measure,
    }  # fmt: skip
    rows = measures[arguments.benchmark](arguments)
    _write(output, {"benchmark": arguments.benchmark, **_circumstances(), "rows": rows})
    say(f"written to {output}")
    if arguments.benchmark == "faults" and (harmed := [row["event"] for row in rows if bench_faults.is_harmed(row)]):
        print(f"bench.py: a study was harmed by: {', '.join(harmed)}.", file=sys.stderr)
        sys.exit(1)


def _vmf(arguments: argparse.Namespace) -> list[Row]:
    """Milliseconds per call of each sampler; the methods take turns, so that a slow moment hits all of them."""
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[variable] = "1"
    import numpy as np  # noqa: PLC0415  after the threads are limited
    import torch  # noqa: PLC0415
    from scipy import stats  # noqa: PLC0415

    from launch.benchmarks.baselines import wood_sample  # noqa: PLC0415
    from pcl.distributions import VonMisesFisher  # noqa: PLC0415

    torch.set_num_threads(1)
    n, dim = arguments.samples, arguments.dim
    mu = torch.nn.functional.normalize(torch.ones(dim), dim=0)
    mu_array = mu.double().numpy() / np.linalg.norm(mu.double().numpy())

    def differentiated(kappa: float) -> None:
        parameter = torch.tensor(kappa, requires_grad=True)
        (VonMisesFisher(mu, parameter).rsample((n,)) @ mu).mean().backward()

    methods: dict[str, Callable[[float], object]] = {
        "pcl sample": lambda kappa: VonMisesFisher(mu, kappa).sample((n,)),
        "pcl sample, float64": lambda kappa: VonMisesFisher(mu.double(), kappa).sample((n,)),
        "pcl sample, a kappa each": lambda kappa: VonMisesFisher(mu, torch.full((n,), kappa)).sample(),
        "pcl rsample and backward": differentiated,
        "wood rejection in torch": lambda kappa: wood_sample(mu, kappa, n),
        "scipy rvs": lambda kappa: stats.vonmises_fisher.rvs(mu_array, kappa, size=n),
        "scipy rvs, PCG64": lambda kappa: stats.vonmises_fisher.rvs(
            mu_array, kappa, size=n, random_state=np.random.default_rng(0)
        ),
    }
    say(f"{n:,} samples, D = {dim}, one CPU thread, float32 (SciPy: float64), median of {arguments.repeats} calls")
    say(f"{'kappa':>8}  {'method':<26}{'ms':>8}{'M samples/s':>13}{'time / pcl sample':>19}")
    rows: list[Row] = []
    for kappa in (0.5, 20.0, 10_000.0):
        times: dict[str, list[float]] = {name: [] for name in methods}
        for turn in range(_WARM_UP + arguments.repeats):
            for name, method in methods.items():
                start = time.perf_counter()
                method(kappa)
                if turn >= _WARM_UP:
                    times[name].append(1e3 * (time.perf_counter() - start))
        ours = statistics.median(times["pcl sample"])
        for name, values in times.items():
            ms = statistics.median(values)
            rows.append(
                {
                    "kappa": kappa,
                    "dim": dim,
                    "samples": n,
                    "method": name,
                    "ms": ms,
                    "all_ms": values,
                    "ratio": ms / ours,
                }
            )
            say(f"{kappa:>8g}  {name:<26}{ms:>8.1f}{n / ms / 1e3:>13.2f}{ms / ours:>19.2f}")
    return rows


def _loss(arguments: argparse.Namespace) -> list[Row]:
    """Forward and backward of each loss, each in a process of its own, so that peak memory is its own."""
    device = chosen_device(arguments.device)
    sizes = {
        "n_samples": arguments.samples,
        "batch_size": arguments.batch_size,
        "n_negatives": arguments.negatives,
        "dim": arguments.dim,
    }
    settings = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    say(f"{settings}, float32, {device}, median of {arguments.repeats} calls")
    say(f"{'loss':<34}{'forward ms':>12}{'backward ms':>13}{'peak MiB':>10}")
    rows: list[Row] = []
    # Ctrl-C is this process's business; leaving the block ends the other.
    ignore_interrupt = (signal.SIGINT, signal.SIG_IGN)
    with multiprocessing.get_context("spawn").Pool(1, signal.signal, ignore_interrupt, maxtasksperchild=1) as pool:
        for name in ("mc_info_nce", "mc_info_nce, whole samples", "hib", "elk", "info_nce"):
            row = pool.apply(measure_loss, (name, sizes, device, arguments.repeats))
            rows.append(row)
            say(f"{name:<34}{row['forward_ms']:>12.1f}{row['backward_ms']:>13.1f}{row['peak_mib']:>10.0f}")
    ours, twin = rows[0], rows[1]
    speed = (twin["forward_ms"] + twin["backward_ms"]) / (ours["forward_ms"] + ours["backward_ms"])
    memory = twin["peak_mib"] / max(ours["peak_mib"], 1.0)  # a resident set is known to about a MiB
    say(f"whole samples take {speed:.1f} times the time and {memory:.1f} times the memory of mc_info_nce")
    return rows


def measure_loss(name: str, sizes: dict[str, int], device: str, repeats: int) -> Row:
    """Time and peak memory of one loss in this process."""
    import torch  # noqa: PLC0415

    from launch.benchmarks.baselines import mc_info_nce_of_whole_samples  # noqa: PLC0415
    from pcl.distributions import VonMisesFisher  # noqa: PLC0415
    from pcl.losses import LOSSES, Loss  # noqa: PLC0415

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
        _wait(device)
        start = time.perf_counter()
        value = loss(*triple).mean()
        _wait(device)
        middle = time.perf_counter()
        value.backward()
        _wait(device)
        return 1e3 * (middle - start), 1e3 * (time.perf_counter() - middle)

    step(2, 2, 1)  # tables and lazy initialisation are not the loss's memory
    before = _peak_mib(device)
    times = [step(sizes["n_samples"], sizes["batch_size"], sizes["n_negatives"]) for _ in range(repeats)]
    forward, backward = (statistics.median(values) for values in zip(*times, strict=True))
    peak = _peak_mib(device) - before
    return {"loss": name, **sizes, "device": device, "forward_ms": forward, "backward_ms": backward, "peak_mib": peak}


def _wait(device: str) -> None:
    if device == "cuda":
        import torch  # noqa: PLC0415

        torch.cuda.synchronize()


def _peak_mib(device: str) -> float:
    """The largest amount of memory so far: of the CUDA allocator, or resident in this process."""
    if device == "cuda":
        import torch  # noqa: PLC0415

        return torch.cuda.max_memory_allocated() / 2**20
    import resource  # noqa: PLC0415  not on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if platform.system() == "Darwin" else peak / 2**10


def _circumstances() -> dict[str, Any]:
    import numpy as np  # noqa: PLC0415
    import scipy  # noqa: PLC0415
    import torch  # noqa: PLC0415

    import pcl  # noqa: PLC0415

    cpu = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": {
            "cpu": cpu,
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        },
        "versions": {
            "pcl": pcl.__version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
    }


def _write(path: Path, content: dict[str, Any]) -> None:
    from pcl.storage.files import replacing  # noqa: PLC0415  -h answers at once

    with replacing(path) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    run(main)
