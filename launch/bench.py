"""Benchmarks: `python launch/bench.py vmf`, `loss`, `toy`, `cifar`, `sharing`, `study`, `search`, `faults`, `load`.

Each prints a table and writes it, with the hardware and the versions, as JSON.
"""

import argparse
import os
import sys
from importlib import import_module
from pathlib import Path

from launch.benchmarks.faults import EVENTS, is_harmed
from launch.shared.command import Parser, run, say, whole_number

_HELP = {
    "vmf": "von Mises-Fisher sampling on one CPU thread, against SciPy and rejection",
    "loss": "time and peak memory of the losses, against whole samples in memory",
    "toy": "a batch of the controlled experiment, fast path against plain twin",
    "cifar": "a batch of images and its parts, an evaluation, a whole fold",
    "sharing": "trials side by side in one process, against one alone",
    "study": "what the service costs: trials that do nothing, and a real grid",
    "search": "trials and time until a search has found the best, on a table",
    "faults": "what studies lose when nodes, networks, drivers and MLflow fail",
    "load": "a thousand trials of a second on three nodes, and ten thousand records",
}


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
    from launch.benchmarks.record import write_record  # noqa: PLC0415  -h answers at once

    write_record(output, benchmark, rows)
    say(f"written to {output}")
    if benchmark == "faults" and (harmed := [row["event"] for row in rows if is_harmed(row)]):
        print(f"bench.py: a study was harmed by: {', '.join(harmed)}.", file=sys.stderr)
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="bench.py", description=__doc__.splitlines()[0] if __doc__ else None)
    benchmarks = parser.add_subparsers(dest="benchmark", required=True)
    parsers = {name: benchmarks.add_parser(name, help=text) for name, text in _HELP.items()}
    _operation_flags(parsers["vmf"], parsers["loss"])
    parsers["cifar"].add_argument("--data", help="auto (default), cifar10h, embedded, or a folder of class folders")
    for name, timed in (("toy", (500, 10)), ("cifar", (100, 5)), ("sharing", (200, 200))):
        _training_flags(parsers[name], *timed)
    _study_flags(parsers["study"], parsers["faults"], parsers["load"])
    _search_flags(parsers["search"])
    for command in parsers.values():
        command.add_argument("--output", type=Path, default=None, help="JSON file (default: runs/bench/NAME.json)")
    return parser


def _operation_flags(vmf: argparse.ArgumentParser, loss: argparse.ArgumentParser) -> None:
    vmf.add_argument("--samples", type=whole_number, default=1_000_000, help="samples a call (default: a million)")
    loss.add_argument("--samples", type=whole_number, default=512, help="Monte-Carlo samples K (default: 512)")
    loss.add_argument("--batch-size", type=whole_number, default=512, help="anchors (default: 512)")
    loss.add_argument("--negatives", type=whole_number, default=32, help="negatives M per anchor (default: 32)")
    loss.add_argument("--device", default=None, help="cpu or cuda (default: cuda if there is a GPU)")
    for command in (vmf, loss):
        command.add_argument("--dim", type=whole_number, default=10, help="dimension (default: 10)")
        command.add_argument("--repeats", type=whole_number, default=5, help="timed calls a row (default: 5)")


def _training_flags(parser: argparse.ArgumentParser, on_gpu: int, on_cpu: int) -> None:
    """Add what all benchmarks of trainings take; the numbers are the batches that are timed for a row."""
    parser.add_argument("--profile", default="reference", help="fidelity profile (default: reference)")
    parser.add_argument("--scale", default=None, help="sizes: paper or quick (default: paper on a GPU, else quick)")
    parser.add_argument("--device", default=None, help="cpu or cuda (default: cuda if there is a GPU)")
    parser.add_argument("--batches", type=whole_number, default=None,
                        help=f"timed batches a row (default: {on_gpu} on a GPU, else {on_cpu})")  # fmt: skip
    parser.set_defaults(timed=(on_gpu, on_cpu))


def _study_flags(
    study: argparse.ArgumentParser, faults: argparse.ArgumentParser, load: argparse.ArgumentParser
) -> None:
    study.add_argument("--trials", type=whole_number, default=64, help="trials that do nothing (default: 64)")
    study.add_argument("--scale", default="quick", help="scale of the real grid (default: quick)")
    study.add_argument("--space", default="toy_mcinfonce", help="the real grid (default: toy_mcinfonce)")
    faults.add_argument(
        "--reports", type=whole_number, default=60, help="reports of each of the 8 trials (default: 60)"
    )
    faults.add_argument("--events", nargs="+", choices=list(EVENTS), default=list(EVENTS), help="(default: all)")
    load.add_argument("--trials", type=whole_number, default=1000, help="number of trials (default: 1000)")
    load.add_argument("--seconds", type=float, default=1.0, help="seconds that each trial sleeps (default: 1)")
    load.add_argument("--cpus", type=whole_number, default=4, help="CPUs that a node claims to have (default: 4)")
    load.add_argument(
        "--records", type=whole_number, default=10_000, help="number of runs that are listed (default: 10000)"
    )


def _search_flags(search: argparse.ArgumentParser) -> None:
    search.add_argument("--table", type=Path, help="file of true results (default: launch/benchmarks/search.jsonl)")
    search.add_argument("--repeats", type=whole_number, default=50, help="searches of each kind (default: 50)")
    search.add_argument("--make", action="store_true", help="train what the table lacks, and stop")
    search.add_argument("--batches", type=whole_number, default=3200, help="--make: batches of a cell (default: 3200)")
    search.add_argument("--set", action="append", default=[], dest="overrides", metavar="PATH=VALUE",
                        help="--make: a setting of all cells")  # fmt: skip
    search.add_argument("--limit", type=float, default=600.0, metavar="SECONDS",
                        help="--make: begin no cell after so long (default: 600)")  # fmt: skip
    search.add_argument("--device", default=None, help="--make: cpu or cuda (default: cuda if there is a GPU)")


if __name__ == "__main__":
    run(main)
