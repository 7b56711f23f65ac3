"""Flags that many commands have, each with one meaning everywhere."""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from pcl.config.fidelity import Profile
from pcl.config.scale import Scale
from pcl.config.suggestion import suggestion
from pcl.config.user_files import Reference
from pcl.studies.ledger.study_storage import Storage

if TYPE_CHECKING:
    from argparse import _ActionsContainer

# The names in EXPERIMENTS, LOSSES and ENCODERS, which would import torch; a test compares them
PARTS = {
    "task": ("toy", "images", "features"),
    "loss": ("mc_info_nce", "hib", "elk", "info_nce"),
    "encoder": ("classifier",),
}
PROFILES, SCALES = tuple(profile.value for profile in Profile), tuple(scale.value for scale in Scale)


def fidelity_flag(parser: "_ActionsContainer", dest: str = "fidelity", default: str | None = None) -> None:
    """Add `--fidelity`, also spelled `--profile`."""
    what = "profile of settings: paper, reference or exact (default: reference)"
    parser.add_argument(
        "--fidelity", "--profile", type=one_of(PROFILES), dest=dest, default=default, metavar="NAME", help=what
    )


def part_flag(parser: "_ActionsContainer", part: str, default: str) -> None:
    """Add a flag that names a task, loss or encoder: one of ours, or one of a user's file."""
    known, own = PARTS[part], "FILE.py:NAME" if part == "task" else "FILE.py:CLASS"
    help = f"{', '.join(known)}, or {own} of your own (default: {default})"
    parser.add_argument(f"--{part}", type=one_of(known, own), metavar="NAME", help=help)


def one_of(known: Collection[str], own: str = "") -> Callable[[str], str]:
    """Return a parser of a known name or, if `own` gives its form, of a part in a user's file."""

    def parse(text: str) -> str:
        if text not in known and not (own and Reference.of(text)):
            told = ", ".join([*known, *([own] if own else [])])
            raise argparse.ArgumentTypeError(f"must be one of {told}, but got {text!r}.{suggestion(text, known)}")
        return text

    return parse


def seeds_flag(parser: "_ActionsContainer", help: str) -> None:
    """Add the flag that takes several seeds."""
    parser.add_argument("--seeds", type=_seeds, default=(), metavar="1,2,3", help=help)


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(int(word) for word in text.replace(",", " ").split())
    except ValueError:
        seeds = ()
    if not seeds or len(set(seeds)) != len(seeds) or not all(0 <= seed < 2**63 for seed in seeds):
        raise argparse.ArgumentTypeError(
            f"takes distinct whole numbers from 0 to 2^63 - 1, such as 1,2,3, but got {text!r}"
        )
    return seeds


def json_flag(parser: "_ActionsContainer") -> None:
    """Add `--json`, which `only_json_on_stdout` and `print_json` implement."""
    parser.add_argument(
        "--json", action="store_true", dest="is_json", help="print the result as JSON on stdout, all else on stderr"
    )


def only_json_on_stdout(*others: tuple[str, object]) -> None:
    """Send all other output to stderr; raise a ValueError if one of these flags, which have no result, is given."""
    for flag, value in others:
        if value:
            raise ValueError(f"`--json` prints a result, but `{flag}` has none: leave one of them out.")
    sys.stdout = sys.stderr


def print_json(content: object) -> None:
    """Print a result on the real stdout."""
    print(json.dumps(content, indent=1), file=sys.__stdout__, flush=True)


def rows_of(table: str, numbers: Collection[str] = ()) -> list[dict[str, str | float | None]]:
    """Return the rows of a CSV table, with the columns `numbers` as numbers; None stands for an empty cell."""
    return [
        {name: _number(text) if name in numbers else text or None for name, text in row.items()}
        for row in csv.DictReader(table.splitlines())
    ]


def _number(text: str) -> float | None:
    if not text:
        return None
    return int(text) if text.isdigit() else float(text)


def storage_flag(parser: "_ActionsContainer") -> None:
    """Add the flag that says where studies are."""
    parser.add_argument("--storage", type=Storage.of, default=Storage.of("runs"), metavar="FOLDER|URI",
                        help="folder of studies, or a store such as s3://BUCKET/PREFIX (default: runs)")  # fmt: skip


def tracking_flag(parser: "_ActionsContainer") -> None:
    """Add the flag that chooses MLflow's store."""
    default = "MLFLOW_TRACKING_URI, else mlflow.db in STORAGE; required with an object store"
    parser.add_argument("--tracking-uri", help=f"MLflow (default: {default})")


def encoder_flags(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that choose a trained encoder: a study or a checkpoint, where studies are, and the seed."""
    parser.add_argument("source", metavar="STUDY|CHECKPOINT", help="a study's name, folder or address, to use its "
                        "winner, or a checkpoint of train.py or of a trial")  # fmt: skip
    storage_flag(parser)
    parser.add_argument("--seed", type=int, help="seed of the checkpoint (default: the first that has not failed)")
