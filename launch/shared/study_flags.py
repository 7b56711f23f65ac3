"""What commands that run studies have in common: their flags, the cluster they join, the MLflow they write to."""

import argparse
import math
import re
import reprlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from launch.shared.command import SKIP_BAD_HELP, WEIGHTS_HELP, require_tracking, say, whole_number
from pcl.studies.ledger.study_storage import Storage

if TYPE_CHECKING:
    from argparse import _ArgumentGroup

    from pcl.studies.execution.interrupt import Interrupt
    from pcl.studies.execution.resources import Cost, Resources
    from pcl.studies.tracking.tracker import Tracker


def what_flags(what: "_ArgumentGroup", seeds: str) -> None:
    """Add the flags that say of what kind the runs are.

    Args:
        what: Takes them.
        seeds: What `--seeds` are.
    """
    what.add_argument("--scale", choices=["smoke", "quick", "paper"], help="default: paper with a GPU, else quick")
    what.add_argument("--fidelity", choices=["paper", "reference", "exact"], help="profile (default: reference)")
    what.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting; may be repeated")
    what.add_argument("--seeds", metavar="1,2,3", help=seeds)
    what.add_argument("--data", help="images: auto (default: CIFAR-10H, else embedded), cifar10h, embedded or a folder")
    what.add_argument("--skip-bad", action="store_true", help=SKIP_BAD_HELP)
    what.add_argument("--weights", metavar="auto|none|FILE", help=WEIGHTS_HELP)


_LONGEST_FILE_NAME = 255  # of file systems
_LONGEST_NAME = 200  # of a new study: endings of files need some of these
_LONGEST_PART = 80  # of what a default name is made of
_TAKEN_NAMES = ("artifacts", "mlflow.db", "mlflow.db.lock", "reproduce")  # of other things in the storage folder


def study_name(text: str, longest: int = _LONGEST_FILE_NAME) -> str:
    """Read an argument that names a study."""
    if not text:
        raise argparse.ArgumentTypeError("must not be empty; leave it out")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise argparse.ArgumentTypeError(f"must be letters, digits, '-', '_' and '.', but got {reprlib.repr(text)}")
    if len(text) > longest:
        got = f"{len(text):,}: {reprlib.repr(text)}"
        raise argparse.ArgumentTypeError(f"must have at most {longest} characters, but got {got}")
    return text


def new_study_name(text: str) -> str:
    """An argument that names a study which may not be there yet."""
    if study_name(text, _LONGEST_NAME) in _TAKEN_NAMES:
        raise argparse.ArgumentTypeError(f"must not be {text!r}, as something else in the storage folder is called")
    return text


def default_name(what: str, data: str, scale: str) -> str:
    """A new name for a study that nobody has named; names of one space and scale sort by time.

    The images' name is in it, for results on different images are never mixed.

    Args:
        what: Is searched or ablated.
        data: "toy", or name and fingerprint of the images.
        scale: Of the runs.
    """
    images = re.sub(r"[^A-Za-z0-9_.]+", "_", data.rpartition("-")[0])
    parts = [what[:_LONGEST_PART], *([images[:_LONGEST_PART]] if images else []), scale]
    return "-".join([*parts, time.strftime("%Y%m%d-%H%M%S"), uuid.uuid4().hex[:6]])


def how_flags(parser: argparse.ArgumentParser, name: str) -> "_ArgumentGroup":
    """Add the flags of how a study runs; returns their group.

    Args:
        parser: Takes them.
        name: What a study's name is made of by default.
    """
    how = parser.add_argument_group("how to run it")
    how.add_argument("--plan", action="store_true", help="print what would run and what it takes, and stop")
    how.add_argument("--name", type=new_study_name, help=f"of the study (default: {name})")
    how.add_argument("--resume", nargs="?", const="", type=_resumed, metavar="STUDY",
                     help="go on with a study (default: the latest)")  # fmt: skip
    running_flags(how)
    return how


def _resumed(text: str) -> str:
    return study_name(text) if text else text


def refuse_with_resume(arguments: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise a ValueError that has those of these options that were given: a study that goes on has its settings."""
    values = {name: getattr(arguments, name) for name in names}
    given = [name for name, value in values.items() if value is not False and value not in (None, "", [])]
    if given:
        told = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise ValueError(f"A study that is resumed has its settings already: leave out {told}.")


def running_flags(how: "_ArgumentGroup") -> None:
    """Add those flags that do not say which study."""
    how.add_argument("--rerun", action="store_true", help="run again also what is known")
    how.add_argument("--fail-fast", action="store_true", help="stop at the first failed trial")
    how.add_argument("--time-budget", type=_minutes, metavar="MINUTES", help="stop cleanly after so long")


def where_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of where a study runs and is kept."""
    where = parser.add_argument_group("where")
    where.add_argument("--storage", type=Storage.of, default=Storage.of("runs"), metavar="FOLDER|URI",
                       help="of studies: a folder, or a store such as s3://BUCKET/PREFIX (default: runs)")  # fmt: skip
    where.add_argument("--tracking-uri", help="MLflow (default: MLFLOW_TRACKING_URI, else STORAGE/mlflow.db)")
    where.add_argument("--address", help="of a Ray cluster: auto, HOST:PORT, or ray://HOST:PORT, "
                       "to which the command is sent as a job (default: start one here)")  # fmt: skip
    where.add_argument("--cpus-per-trial", type=_amount, default=1.0, help="default: 1")
    where.add_argument("--gpus-per-trial", type=_gpus, metavar="N|auto", help="may be a fraction; auto: the share that "
                       "a first trial is seen to need (default: 1 if there are any)")  # fmt: skip
    where.add_argument("--side-by-side", type=whole_number, metavar="N", help="trials that share a process and what it "
                       "is given (default: 1, or what --gpus-per-trial auto sees to pay)")  # fmt: skip
    where.add_argument("--max-concurrent", type=whole_number, help="trials at once (default: as many as fit)")


def _gpus(text: str) -> float | str:
    return text if text == "auto" else _amount(text, " or auto")


def _amount(text: str, others: str = "") -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number from 0{others}, but got {text!r}")
    return amount


def _minutes(text: str) -> float:
    if not _amount(text):
        raise argparse.ArgumentTypeError(f"must be more than 0, but got {text!r}")
    return float(text)


def resources_of(
    arguments: argparse.Namespace, available: dict[str, float], costs: Sequence["Cost"] = ()
) -> "Resources":  # fmt: skip
    """Of a trial; where its share of a GPU is to be found out, a whole one until costs are known."""
    from pcl.studies.execution.resources import Resources, gpu_share  # noqa: PLC0415

    gpus, side_by_side = arguments.gpus_per_trial, arguments.side_by_side or 1
    if gpus is None or gpus == "auto":
        gpus = 1.0 if available.get("GPU") else 0.0
    if arguments.gpus_per_trial == "auto" and arguments.side_by_side is None:
        side_by_side = min((cost.side_by_side for cost in costs), default=1)
        gpus *= gpu_share(costs) if side_by_side == 1 else 1.0
    if arguments.cpus_per_trial < 0 or gpus < 0 or (gpus > 1 and gpus != int(gpus)):
        raise ValueError(f"`--cpus-per-trial {arguments.cpus_per_trial:g} --gpus-per-trial {gpus:g}` is not possible.")
    return Resources(arguments.cpus_per_trial, gpus, arguments.max_concurrent or 0, side_by_side)


def checked_tracker(arguments: argparse.Namespace) -> "Tracker":
    """MLflow, where it can be used."""
    from pcl.studies.tracking.tracker import Tracker, tracking_uri  # noqa: PLC0415

    require_tracking(arguments.storage, arguments.tracking_uri)
    tracker = Tracker(tracking_uri(arguments.tracking_uri, arguments.storage.path.absolute()))
    tracker.check()
    return tracker


def check_cluster(arguments: argparse.Namespace) -> None:
    """Raise a ValueError unless a trial fits here, or there is a cluster: before Ray starts, which takes a while."""
    from pcl.studies.cluster.joining import check_address  # noqa: PLC0415

    if arguments.address is None:
        resources_of(arguments, machine()).require(machine())
    else:
        check_address(arguments.address)


@contextmanager
def joined(arguments: argparse.Namespace, interrupt: "Interrupt", how_to_go_on: Callable[[], str]) -> Iterator[str]:
    """Ray, started here or joined, with Ctrl-C in our hands; yields its dashboard's address.

    Args:
        arguments: Of the command line.
        interrupt: Set by Ctrl-C.
        how_to_go_on: Says what to do where Ray does not start, or takes the driver with it.
    """
    from pcl.studies.cluster.session import ray_cluster  # noqa: PLC0415
    from pcl.studies.cluster.start import NotStarted  # noqa: PLC0415

    interrupt.leaving.how_to_go_on = how_to_go_on
    stopped = f"stopped while Ray was starting; {how_to_go_on()}"
    try:
        with interrupt.on_ctrl_c(say), ray_cluster(arguments.address, arguments.storage, say, stopped) as dashboard:
            yield dashboard
    except NotStarted as error:
        raise NotStarted(f"{error}; {how_to_go_on()}.") from error


def say_addresses(dashboard: str, tracker: "Tracker") -> None:
    """Tell where to look."""
    if dashboard:
        say(f"Ray dashboard: {dashboard} (if it asks for a token: `ray get-auth-token`)")
    uri = tracker.shown_uri
    if uri.startswith("http"):
        say(f"MLflow UI: {uri.rstrip('/')}/{tracker.trials_page}")
    else:
        say(f"MLflow UI: {Path(sys.executable).parent / 'mlflow'} ui --backend-store-uri {uri}")
        say(f"           then http://127.0.0.1:5000/{tracker.trials_page}")


def provenance() -> tuple[str, str, str]:
    """Commit, hash of the lock, and hardware, as a study's tags have them."""
    from pcl.studies.execution.worker import hardware_name  # noqa: PLC0415
    from pcl.studies.ledger.provenance import commit, lock_hash  # noqa: PLC0415

    return commit(), lock_hash(), hardware_name("cuda" if machine()["GPU"] else "cpu")


@lru_cache
def machine(address: str | None = None) -> dict[str, float]:
    """What the cluster at an address has, or one that is started here will have."""
    if address is not None:
        from pcl.studies.cluster.session import resources_at  # noqa: PLC0415

        return resources_at(address)
    import torch  # noqa: PLC0415

    from pcl.studies.cluster.session import n_cores  # noqa: PLC0415

    return {"CPU": float(n_cores()), "GPU": float(torch.cuda.device_count())}
