"""Flags shared by the commands that run studies, and the requests that they become."""

import argparse
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from launch.shared.command import DATA_HELP, SKIP_BAD_HELP, WEIGHTS_HELP, settings, whole_number
from launch.shared.common_flags import (
    SCALES,
    fidelity_flag,
    only_json_on_stdout,
    seeds_flag,
    storage_flag,
    tracking_flag,
)
from launch.studies.requests import ConfigRequest, ImageRequest, StudyChoice
from pcl.config.dotted_paths import check_values
from pcl.studies.ledger.study_names import check_name, check_new_name
from pcl.studies.session.request import AUTO, ResourceRequest, Runner, RunRequest, SearchRequest
from pcl.studies.space.declarations import Shelf

if TYPE_CHECKING:
    from argparse import _ArgumentGroup


def what_flags(what: "_ArgumentGroup", seeds: str) -> None:
    """Add the flags that choose what is run."""
    what.add_argument("--scale", choices=SCALES, help="default: paper with a GPU, else quick")
    fidelity_flag(what)
    what.add_argument(
        "--set", action="append", default=[], metavar="PATH=VALUE", help="change a setting; may be repeated"
    )
    seeds_flag(what, seeds)
    what.add_argument("--data", help=DATA_HELP)
    what.add_argument("--skip-bad", action="store_true", help=SKIP_BAD_HELP)
    what.add_argument("--weights", metavar="auto|none|FILE", help=WEIGHTS_HELP)


def study_name(text: str) -> str:
    """Read an argument that names a study."""
    return _read(check_name, text)


def new_study_name(text: str) -> str:
    """Read an argument that names a study which may be new."""
    return _read(check_new_name, text)


def _read(check: Callable[[str], str], text: str) -> str:
    try:
        return check(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def how_flags(parser: argparse.ArgumentParser, name: str) -> "_ArgumentGroup":
    """Add the flags of how a study runs; returns their group. `name` says what the default name is made of."""
    how = parser.add_argument_group("how to run it")
    how.add_argument("--plan", action="store_true", help="print what would run and what it takes, and stop")
    how.add_argument("--name", type=new_study_name, metavar="STUDY", help=f"name of the study (default: {name})")
    how.add_argument("--resume", nargs="?", const="", type=_resumed, metavar="STUDY",
                     help="continue a study (default: the latest)")  # fmt: skip
    running_flags(how)
    return how


def _resumed(text: str) -> str:
    return study_name(text) if text else text


def running_flags(how: "_ArgumentGroup") -> None:
    """Add those of how a study runs that do not name the study."""
    how.add_argument("--runner", choices=["ray", "inline"], default="ray", help="inline: in this process without Ray, "
                     "one trial after the other (default: ray)")  # fmt: skip
    how.add_argument("--rerun", action="store_true", help="run trials again even if their results are known")
    how.add_argument("--fail-fast", action="store_true", help="stop at the first failed trial")
    how.add_argument("--time-budget", type=_minutes, metavar="MINUTES", help="stop cleanly after this time")


def where_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of where a study runs and is kept."""
    where = parser.add_argument_group("where")
    storage_flag(where)
    tracking_flag(where)
    where.add_argument("--address", help="of a Ray cluster: auto, HOST:PORT, or ray://HOST:PORT "
                       "to send the command there as a job (default: start a cluster here)")  # fmt: skip
    where.add_argument("--cpus-per-trial", type=_amount, default=1.0, metavar="N", help="default: 1")
    where.add_argument("--gpus-per-trial", type=_gpus, default=AUTO, metavar="N|auto", help="may be a fraction "
                       "(default: auto, which measures how many trials to run on each GPU)")  # fmt: skip
    where.add_argument("--side-by-side", type=whole_number, metavar="N", help="trials that share a process and its "
                       "resources (default: 1, or as many as are measured to pay)")  # fmt: skip
    where.add_argument(
        "--max-concurrent", type=whole_number, metavar="N", help="trials at once (default: as many as fit)"
    )


def _gpus(text: str) -> float | Literal["auto"]:
    return AUTO if text == AUTO else _amount(text, " or auto")


def _amount(text: str, others: str = "") -> float:
    amount = _number(text)
    if not 0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number from 0{others}, but got {text!r}")
    return amount


def _minutes(text: str) -> float:
    minutes = _number(text)
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, but got {text!r}")
    return minutes


def _number(text: str) -> float:
    """Return text as a number, NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def answer_json(arguments: argparse.Namespace) -> None:
    """Reserve stdout for the result if `--json` is given; refuse `--json` for a command that does not run here."""
    if arguments.is_json:
        is_sent_away = (arguments.address or "").startswith("ray://")
        only_json_on_stdout(("--list", arguments.list), ("--plan", arguments.plan), ("--address ray://", is_sent_away))


def config_request(arguments: argparse.Namespace, shelf: Shelf | None = None, name: str | None = None) -> ConfigRequest:
    """Return the runs that `what_flags` ask for, of the space or ablation with this name or path, if any.

    A misspelt setting is refused at once, unless the runs may have a user's own part, whose settings are not known yet.

    Raises:
        ValueError: If there is no such space or ablation, or no such setting.
    """
    images = ImageRequest(arguments.data, arguments.skip_bad, arguments.weights)
    texts, values = tuple(arguments.set), settings(arguments.set)
    if shelf is None or name is None or not shelf.may_have_own_parts(name):
        check_values(values)
    return ConfigRequest(arguments.scale, arguments.fidelity, values, texts, arguments.seeds, images)


OF_SEARCH = ("search", "trials", "search_seed", "sampler", "warm_start", "scheduler", "objectives", "replicate")


def search_request(arguments: argparse.Namespace) -> SearchRequest:
    """Return the search that the options `OF_SEARCH` ask for."""
    if arguments.objectives == "":  # as from an unset shell variable
        raise ValueError("`--objectives` must not be empty; leave it out.")
    objectives = tuple(map(str.strip, arguments.objectives.split(","))) if arguments.objectives else ()
    return SearchRequest(
        arguments.search, arguments.trials, arguments.search_seed, arguments.sampler, arguments.warm_start,
        arguments.scheduler, objectives, arguments.replicate,
    )  # fmt: skip


def study_choice(arguments: argparse.Namespace, fixed: Sequence[str]) -> StudyChoice:
    """Return the study that `how_flags` ask for; a resumed one already has the options of its runs and `fixed`."""
    values = {name: getattr(arguments, name) for name in [*fixed[:1], *_OF_RUNS, *fixed[1:]]}
    given = [name for name, value in values.items() if value is not False and value not in (None, "", [], ())]
    if arguments.resume is not None and given:
        told = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"A resumed study already has its settings: leave out {told}.")
    return StudyChoice(arguments.name, arguments.resume, arguments.plan)


_OF_RUNS = ("scale", "fidelity", "set", "seeds", "name", "data", "skip_bad", "weights")


def run_request(arguments: argparse.Namespace) -> RunRequest:
    """Return how and where the study runs, from `running_flags` and `where_flags`."""
    resources = ResourceRequest(
        arguments.cpus_per_trial, arguments.gpus_per_trial, arguments.side_by_side, arguments.max_concurrent
    )
    return RunRequest(
        arguments.storage, arguments.tracking_uri, arguments.address, resources, arguments.rerun, arguments.fail_fast,
        60 * (arguments.time_budget or 0.0), getattr(arguments, "finalize", None), Runner(arguments.runner),
    )  # fmt: skip
