"""How every command speaks and ends: with one sentence where something goes wrong, and never with a traceback."""

import argparse
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from pcl.storage.object_stores import check_address
from pcl.studies.cluster.loss import end_process, is_lost
from pcl.studies.ledger.study_storage import Storage
from pcl.training.diverged import Diverged

SKIP_BAD_HELP = "of a folder: leave out files that cannot be read as images; they are counted and named"


class Parser(argparse.ArgumentParser):
    """Of a command's options; a user's error is one sentence, without a page of what could be given."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"{sys.argv[0]}: {message.rstrip('.')}; `--help` shows what there is.\n")


def say(line: str) -> None:
    """Print a line at once, also into a pipe."""
    print(line, flush=True)


def run(main: Callable[[], None]) -> NoReturn:
    """Call `main` and exit: 0 when it returns, 1 for what is unexpected, 2 for a user's error, 130 for Ctrl-C.

    What is unexpected is also training that diverged. PCL_TRACEBACK=1 in the environment shows every error's traceback.
    """
    try:
        _ended(main)
    except SystemExit as ended:
        if is_lost():
            end_process(ended.code if isinstance(ended.code, int) else 1)
        raise


def _ended(main: Callable[[], None]) -> NoReturn:
    try:
        main()
    except (ValueError, OSError, MemoryError) as error:
        _leave(error, " ".join([str(error), *(f"{note}." for note in getattr(error, "__notes__", []))]), 2)
    except Diverged as error:
        _leave(error, str(error), 1)
    except KeyboardInterrupt as interrupt:
        told = (
            interrupt.args[0]
            if interrupt.args
            else "stopped; nothing was left half written. Run it again to start over"
        )
        print(f"\n{sys.argv[0]}: {told}.", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        # A mistake of ours, or what Ray, MLflow or a database raise where nobody foresaw it.
        lines = str(error).strip().splitlines()
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
        cause = f"{type(error).__name__}{f': {lines[0]}' if lines else ''}".rstrip(".")
        _leave(error, f"{cause} (unexpected: {_kept(error)}){notes}.", 1)
    sys.exit(0)


def _leave(error: Exception, told: str, code: int) -> NoReturn:
    if os.environ.get("PCL_TRACEBACK") == "1":
        print(_without_passwords("".join(traceback.format_exception(error))), file=sys.stderr)
    print(f"{sys.argv[0]}: {_without_passwords(told)}", file=sys.stderr)
    sys.exit(code)


def _kept(error: Exception) -> str:
    """Write an error's traceback to a file of this user alone; returns where it is to be found."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="pcl-error-", suffix=".txt", delete=False) as file:
            file.write(_without_passwords("".join(traceback.format_exception(error))))
    except OSError:  # such as a full disk
        return "PCL_TRACEBACK=1 in the environment shows the traceback"
    return f"{file.name} has the traceback"


def _without_passwords(text: str) -> str:
    """A text whose addresses have no user and password."""
    return re.sub(r"(?<=//)[^/@\s]*@", "", text)


def settings(texts: Sequence[str]) -> dict[str, str]:
    """The values of `--set PATH=VALUE`, by path."""
    values = {}
    for text in texts:
        path, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"`--set` takes PATH=VALUE, but got {text!r}.")
        values[path.strip()] = value.strip()
    return values


def require_tracking(storage: Storage, tracking_uri: str | None) -> None:
    """Raise a ValueError where studies are in a store and nothing says where they are recorded."""
    if not storage.is_store:
        return
    check_address(storage.mirror.uri)
    if not (tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")):
        raise ValueError(
            f"`--tracking-uri` must be given with `--storage {storage}`: machines that share a store do not share a "
            f"database on one of them."
        )


def whole_number(text: str) -> int:
    """An argument of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 must be given, but got {text!r}")
    return number


def chosen_device(asked: str | None) -> str:
    """The device that was asked for, or CUDA where there is one."""
    import torch  # noqa: PLC0415  -h answers at once

    device = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    if device not in ("cpu", "cuda"):
        raise ValueError(f"`--device` must be cpu or cuda, but got {device}.")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("`--device cuda` needs a CUDA device, and there is none here; leave it out to use the CPU.")
    return device
