"""What a search costs until it has found the best: grid, random, Optuna, Optuna + ASHA, on a table of true results."""

import argparse
from pathlib import Path
from typing import Any

from launch.bench_search_table import TABLE, make
from launch.command import chosen_device, whole_number

Row = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench.py search`."""
    parser.add_argument("--table", type=Path, default=TABLE, help="true results (default: launch/bench_search.jsonl)")
    parser.add_argument("--make", action="store_true", help="train what the table lacks, and stop; needs torch alone")
    parser.add_argument("--batches", type=whole_number, default=4000, help="--make: of a cell (default: 4000)")
    parser.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="--make: (default: 600)")
    parser.add_argument("--device", default=None, help="--make: cpu or cuda (default: cuda where there is one)")


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Make the table, or replay it."""
    if arguments.make:
        return make(arguments.table, arguments.batches, chosen_device(arguments.device), arguments.limit)
    raise ValueError("only --make is here yet")
