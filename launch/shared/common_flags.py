"""Flags that many commands have, each with one meaning everywhere."""

import argparse
import csv
import json
import sys
from typing import TYPE_CHECKING

from pcl.config.suggestion import suggestion

if TYPE_CHECKING:
    from argparse import _ActionsContainer

_PROFILES = ("paper", "reference", "exact")


def fidelity_flag(parser: "_ActionsContainer") -> None:
    """Add the flag of the profile, which `--profile` is another name of."""
    what = "profile of settings: paper, reference or exact (default: reference)"
    parser.add_argument("--fidelity", "--profile", type=_profile, metavar="NAME", help=what)


def _profile(text: str) -> str:
    if text not in _PROFILES:
        known, hint = ", ".join(_PROFILES), suggestion(text, _PROFILES)
        raise argparse.ArgumentTypeError(f"must be one of {known}, but got {text!r}.{hint}")
    return text


def seeds_flag(parser: "_ActionsContainer", help: str) -> None:
    """Add the flag that takes several seeds."""
    parser.add_argument("--seeds", type=_seeds, default=(), metavar="1,2,3", help=help)


def _seeds(text: str) -> tuple[int, ...]:
    try:
        seeds = tuple(int(word) for word in text.replace(",", " ").split())
    except ValueError:
        seeds = ()
    if not seeds or len(set(seeds)) != len(seeds) or not all(0 <= seed < 2**63 for seed in seeds):
        raise argparse.ArgumentTypeError(f"takes different whole numbers such as 1,2,3, but got {text!r}")
    return seeds


def json_flag(parser: "_ActionsContainer") -> None:
    """Add the flag that `only_json_on_stdout` and `print_json` are for."""
    parser.add_argument(
        "--json", action="store_true", dest="is_json", help="print the result as JSON on stdout, all else on stderr"
    )


def only_json_on_stdout() -> None:
    """Let all that is said go to stderr."""
    sys.stdout = sys.stderr


def print_json(content: object) -> None:
    """Print a result on the real stdout."""
    print(json.dumps(content, indent=1), file=sys.__stdout__, flush=True)


def rows_of(table: str) -> list[dict[str, str | float | None]]:
    """Return the rows of a table in CSV, with numbers as such and None for what is empty or not finite."""
    return [{name: _value(text) for name, text in row.items()} for row in csv.DictReader(table.splitlines())]


def _value(text: str) -> str | float | None:
    try:
        number = float(text)
    except ValueError:
        return text or None
    return number if abs(number) < float("inf") else None
