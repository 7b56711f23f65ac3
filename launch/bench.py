"""Benchmarks: `bench.py NAME` prints a table and writes it as JSON, with hardware and versions."""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from launch.benchmarks import faults
from launch.benchmarks.chaos import verdict
from launch.shared.command import DATA_HELP, Parser, device_flag, run, say, whole_number
from launch.shared.common_flags import fidelity_flag

_HELP = {
    "vmf": "von Mises-Fisher sampling on one CPU thread, against SciPy and rejection",
    "loss": "time and peak memory of the losses, compared with whole samples in memory",
    "toy": "time of a batch of the controlled experiment, fast path and plain twin",
    "cifar": "time of a batch of images and its parts, an evaluation and a whole fold",
    "predict": "images per second of an image model, through MLflow and without it",
    "sharing": "throughput of trials side by side in one process, compared with one alone",
    "study": "overhead of the service: trials that do nothing, and a real grid",
    "search": "trials and time until a search finds the best, replayed on a table",
    "faults": "what studies lose when nodes, networks, drivers and MLflow fail",
    "chaos": "studies with faults at random moments, resumed and compared with undisturbed ones",
    "load": "1,000 trials of one second on three nodes, and 10,000 records",
}

_COUNTS = {  # flags with whole numbers: the default, and what they count
    "vmf": {"samples": (1_000_000, "samples a call"), "dim": (10, "dimension"), "repeats": (5, "timed calls a row")},
    "loss": {
        "samples": (512, "Monte-Carlo samples K"), "batch-size": (512, "anchors"),
        "negatives": (32, "negatives M per anchor"), "dim": (10, "dimension"), "repeats": (5, "timed calls a row"),
    },
    "predict": {"side": (32, "rows of an image"), "width": (64, "network width"), "seconds": (5, "seconds a row")},
    "study": {"trials": (64, "trials that do nothing")},
    "search": {"repeats": (50, "searches of each kind"), "batches": (3200, "--make: batches of a cell")},
    "faults": {"reports": (60, "reports of each of the 8 trials")},
    "chaos": {"seed": (1, "seed of the faults"), "minutes": (10, "minutes, after which the running round is the last")},
    "load": {
        "trials": (1000, "trials"), "inline": (300, "trials in this process"),
        "cpus": (4, "CPUs that each node claims to have"), "records": (10_000, "runs to list"),
    },
}  # fmt: skip
_TIMED = {"toy": (500, 10), "cifar": (100, 5), "sharing": (200, 0)}  # batches per row, on a GPU and on a CPU


def main() -> None:
    """Parse the command line and run one benchmark: the module of its name in `launch.benchmarks`."""
    given = vars(_parser().parse_args())
    benchmark, output = given.pop("benchmark"), given.pop("output")
    if given.get("dim", 2) < 2:
        raise ValueError(f"`--dim >= 2` must hold, but got {given['dim']}.")
    output = output or Path("runs") / "bench" / f"{benchmark}.json"
    if output.is_dir():
        raise ValueError(f"`--output` must name a file, but {output} is a folder.")
    if benchmark == "vmf":  # before NumPy and torch are imported
        os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    output.parent.mkdir(parents=True, exist_ok=True)
    rows = import_module(f"launch.benchmarks.{benchmark}").measure(**given)
    from launch.benchmarks.measurement import write_record  # noqa: PLC0415  -h answers at once

    write_record(output, benchmark, rows)
    say(f"written to {output}")
    is_harmed = {"faults": faults.is_harmed, "chaos": verdict.is_harmed}.get(benchmark, lambda _: False)
    if harmed := [row["event"] for row in rows if is_harmed(row)]:
        print(f"bench.py: a study was harmed by: {', '.join(harmed)}.", file=sys.stderr)
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    benchmarks = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    parsers = {name: benchmarks.add_parser(name, help=text) for name, text in _HELP.items()}
    for benchmark, counts in _COUNTS.items():
        for name, (default, text) in counts.items():
            told = f"{text} (default: {default:,})"
            parsers[benchmark].add_argument(f"--{name}", type=whole_number, default=default, help=told)
    device_flag(parsers["loss"])
    device_flag(parsers["predict"])
    for name in ("cifar", "sharing"):
        parsers[name].add_argument("--data", help=DATA_HELP)
    parsers["sharing"].add_argument("--task", choices=("toy", "images"), default="toy", help="default: toy")
    for name, timed in _TIMED.items():
        _training_flags(parsers[name], *timed)
    parsers["study"].add_argument("--scale", default="quick", help="scale of the real grid (default: quick)")
    parsers["study"].add_argument("--space", default="toy_mcinfonce", help="the real grid (default: toy_mcinfonce)")
    events = list(faults.EVENTS)
    parsers["faults"].add_argument("--events", nargs="+", choices=events, default=events, metavar="EVENT",
                                   help=f"some of: {', '.join(map(repr, events))} (default: all)")  # fmt: skip
    parsers["chaos"].add_argument("--round", type=whole_number, dest="number", metavar="K", help="run this round alone")
    parsers["load"].add_argument("--seconds", type=float, default=1.0, help="seconds of sleep per trial (default: 1)")
    _search_flags(parsers["search"])
    for name, command in parsers.items():
        command.add_argument("--output", type=Path, help=f"the table as JSON (default: runs/bench/{name}.json)")
    return parser


def _training_flags(parser: argparse.ArgumentParser, on_gpu: int, on_cpu: int) -> None:
    """Add the flags of all training benchmarks; the numbers are the batches timed per row."""
    fidelity_flag(parser, dest="profile", default="reference")
    parser.add_argument("--scale", help="sizes: paper or quick (default: paper on a GPU, else quick)")
    device_flag(parser)
    told = f"{on_gpu} on a GPU, else {on_cpu}" if on_cpu else str(on_gpu)
    parser.add_argument("--batches", type=whole_number, help=f"timed batches a row (default: {told})")
    parser.set_defaults(timed=(on_gpu, on_cpu))


def _search_flags(search: argparse.ArgumentParser) -> None:
    search.add_argument("--table", type=Path, help="table of results (default: launch/benchmarks/search.jsonl)")
    search.add_argument("--make", action="store_true", help="train the cells that the table lacks, and stop")
    search.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE",
                        help="--make: a setting of all cells")  # fmt: skip
    search.add_argument("--limit", type=float, default=600.0, metavar="SECONDS",
                        help="--make: begin no cell after this time (default: 600)")  # fmt: skip
    device_flag(search, "--make: ")


if __name__ == "__main__":
    run(main)
