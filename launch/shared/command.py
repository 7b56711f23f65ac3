"""Frame of every command: an error gives one sentence and an exit code, never a traceback."""

import argparse
import errno
import os
import reprlib
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from pcl.storage.credentials import masked, without_credentials
from pcl.studies.cluster.loss import is_lost
from pcl.studies.cluster.process_end import end_process, end_without_destructors, n_ray_calls
from pcl.training.diverged import Diverged

SKIP_BAD_HELP = "with a folder: skip files that cannot be read as images; they are counted and named"
DATA_HELP = (
    "images: auto (default: CIFAR-10H, else embedded), cifar10h, embedded, or a folder of class folders; features: "
    "FILE.npz"
)
WEIGHTS_HELP = "images: auto (default: weights pretrained on these images, trained first if need be), none, or a file"


class _Help(argparse.RawDescriptionHelpFormatter):
    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        """Return the placeholder of an option's value: its kind, not the option's name once more."""
        by_name = {
            "data": "NAME|FOLDER", "tracking_uri": "URI", "folder": "FOLDER", "results": "FOLDER", "export": "FOLDER",
            "address": "ADDRESS", "host": "HOST", "python": "FILE", "lr": "NUMBER", "seconds": "NUMBER",
        }  # fmt: skip
        by_type: dict[object, str] = {int: "N", whole_number: "N", Path: "FILE", None: "NAME"}
        found = by_name.get(action.dest) or by_type.get(action.type)
        return found or super()._get_default_metavar_for_optional(action)


class Parser(argparse.ArgumentParser):
    """A parser that answers a wrong option with one sentence instead of the whole usage."""

    def __init__(self, description: str | None = None, **options: Any) -> None:
        super().__init__(description=description, formatter_class=_Help, **options)

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        joint = "" if message.endswith("?") else ";"
        self.exit(2, f"{sys.argv[0]}: {_printable(message.rstrip('.'))}{joint} `--help` shows all options.\n")


def say(line: str) -> None:
    """Print a line and flush it, even into a pipe."""
    print(line, flush=True)


def run(main: Callable[[], None]) -> NoReturn:
    """Call `main` and exit with a code.

    0: `main` has returned; 1: training diverged, or something unexpected failed; 2: user error; 130: Ctrl-C.
    PCL_TRACEBACK=1 in the environment prints the traceback of every error.
    """
    _hide_passwords()
    n_before = n_ray_calls()
    try:
        _ended(main)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        if is_lost():
            end_process(code)
        if n_ray_calls() > n_before:
            end_without_destructors(code)
        raise


def _ended(main: Callable[[], None]) -> NoReturn:
    try:
        main()
    except (ValueError, OSError, MemoryError) as error:
        _leave(error, " ".join([_sentence(error), *(f"{note}." for note in getattr(error, "__notes__", []))]), 2)
    except Diverged as error:
        _leave(error, str(error), 1)
    except KeyboardInterrupt as interrupt:
        told = [*interrupt.args, "stopped; nothing was left half written. Run the same command again"]
        print(f"\n{sys.argv[0]}: {told[0]}.", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        # Our own bug, or an unforeseen error of Ray, MLflow or a database.
        lines = str(error).strip().splitlines()
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", []))
        cause = f"{type(error).__name__}{f': {lines[0]}' if lines else ''}".rstrip(".")
        _leave(error, f"{cause} (unexpected: {_kept(error)}){notes}.", 1)
    sys.exit(0)


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"No file can have a name as long as {reprlib.repr(error.filename)}."
    return str(error)


def _leave(error: Exception, told: str, code: int) -> NoReturn:
    if os.environ.get("PCL_TRACEBACK") == "1":
        print(without_credentials("".join(traceback.format_exception(error))), file=sys.stderr)
    print(f"{sys.argv[0]}: {_printable(without_credentials(told))}", file=sys.stderr)
    sys.exit(code)


def _printable(text: str) -> str:
    """Return a text in one line, with unprintable characters, such as in file names, as escapes."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _kept(error: Exception) -> str:
    """Write an error's traceback to a file that only this user can read; returns a hint on where it is."""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="pcl-error-", suffix=".txt", delete=False) as file:
            file.write(without_credentials("".join(traceback.format_exception(error))))
    except OSError:  # such as a full disk
        return "PCL_TRACEBACK=1 in the environment shows the traceback"
    return f"{file.name} has the traceback"


def _hide_passwords() -> None:
    """Overwrite passwords of addresses in this process's command line: `ps` shows it, and Ray keeps it with a job.

    Only Linux tells where the command line is in memory.
    """
    with suppress(OSError, ValueError, IndexError):
        words = Path("/proc/self/cmdline").read_bytes()
        hidden = masked(words)
        if hidden != words:
            fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
            with open("/proc/self/mem", "r+b", buffering=0) as memory:
                begin = memory.seek(int(fields[45]))  # the field `arg_start`
                if memory.read(len(words)) == words:
                    memory.seek(begin)
                    memory.write(hidden)


def settings(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of `--set PATH=VALUE` by path, as text."""
    values = {}
    for text in texts:
        path, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"`--set` takes PATH=VALUE, but got {text!r}.")
        values[path.strip()] = value.strip()
    return values


def whole_number(text: str) -> int:
    """Parse a whole number of at least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number of at least 1 must be given, but got {text!r}")
    return number


def require_folder(flag: str, folder: Path) -> None:
    """Raise a ValueError if files cannot be written to the folder named by a flag; it need not exist."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`{flag}` must name a folder, but {folder} is a file.")
    require_writable(flag, folder)


def require_writable(flag: str, folder: Path) -> None:
    """Raise a ValueError if a folder, or its nearest parent if it does not exist, does not take files."""
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"`{flag}` must be in a folder that can be written to, but {folder} is not.")


def device_flag(parser: argparse.ArgumentParser, when: str = "") -> None:
    """Add the flag that `chosen_device` reads."""
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], metavar="cpu|cuda", help=f"{when}default: cuda if there is a GPU, else cpu"
    )


def chosen_device(asked: str | None) -> str:
    """Return the requested device; by default CUDA if there is a GPU, else the CPU."""
    import torch  # noqa: PLC0415  parsers import this file: -h answers at once

    device = asked or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("`--device cuda` needs a CUDA device, and there is none here; leave it out to use the CPU.")
    return device
