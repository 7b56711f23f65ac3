"""How a study's command ends: with a winner, with the reason why there is none, and with the command that goes on."""

import argparse
import contextlib
import shlex
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcl.studies.ledger.folders import StudyFolder
    from pcl.studies.search.stages import Finding

GRID, ABLATE, REPRODUCE = "grid", "ablate", "reproduce"


def leave(finding: "Finding", cause: str, command: str) -> None:
    """Exit with 0 only if there is a winner."""
    if cause == "stopped":
        raise KeyboardInterrupt(f"stopped; `{command}` goes on")
    if cause or finding.best is None:
        lacks = "no trial of a stage finished, so there is no winner; the table says why"
        told = f"{cause}; `{command}` goes on" if cause else lacks
        print(f"grid.py: {told}.", file=sys.stderr)
        sys.exit(1)


@contextlib.contextmanager
def resumable(folder: "StudyFolder", arguments: argparse.Namespace, command: str = GRID) -> Iterator[None]:
    """Say how to go on after what the study itself cannot bear.

    Args:
        folder: The study's.
        arguments: Of the command line.
        command: Which of the commands.
    """
    going_on = command_to_resume(folder, arguments, command)
    try:
        with goes_on(command, going_on):
            yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped at once; `{going_on}` goes on") from None
    except Exception as error:
        error.add_note(f"`{going_on}` goes on")  # what is unexpected is told by `launch.shared.command.run`
        raise


@contextlib.contextmanager
def goes_on(command: str, going_on: str) -> Iterator[None]:
    """Say how to go on after a disk or MLflow has failed.

    Args:
        command: Which of the commands this is.
        going_on: The command that goes on.
    """
    from pcl.studies.tracking.tracker import StoreError  # noqa: PLC0415  -h answers at once

    try:
        yield
    except (OSError, StoreError) as error:
        print(f"{command}.py: {error}; once that is mended, `{going_on}` goes on.", file=sys.stderr)
        sys.exit(1)


def how_to_go_on(folder: "StudyFolder | None", arguments: argparse.Namespace, command: str = GRID) -> str:
    """Say what to do where a command ends before it has opened its study."""
    if folder is not None and not (folder.path / "study.json").exists():
        return "nothing has begun, so run the same command again"
    return f"`{command_to_resume(folder, arguments, command)}` goes on"


def command_to_resume(folder: "StudyFolder | None", arguments: argparse.Namespace, command: str = GRID) -> str:
    """The command that goes on with a study, or with a reproduction, which is not one of a folder."""
    from pcl.studies.tracking.tracker import shown_uri  # noqa: PLC0415

    flags = [*_resources(arguments), ("--storage", str(arguments.storage) if str(arguments.storage) != "runs" else "")]
    flags += [("--tracking-uri", shown_uri(arguments.tracking_uri or "")), ("--address", arguments.address)]
    given = "".join(f" {flag} {shlex.quote(value)}" for flag, value in flags if value)
    return f"python launch/{command}.py {_going_on(command, folder, arguments)}{_finalize(arguments)}{given}"


def _resources(arguments: argparse.Namespace) -> list[tuple[str, str]]:
    """The flags of what trials are given and how many run at once, which no study keeps: machines differ."""
    cpus, gpus = arguments.cpus_per_trial, arguments.gpus_per_trial
    amounts = {
        "--cpus-per-trial": "" if cpus == 1 else f"{cpus:g}",
        "--gpus-per-trial": "" if gpus is None else gpus if isinstance(gpus, str) else f"{gpus:g}",
        "--side-by-side": str(arguments.side_by_side or ""),
        "--max-concurrent": str(arguments.max_concurrent or ""),
    }
    return list(amounts.items())


def _finalize(arguments: argparse.Namespace) -> str:
    """The flag of `grid.py` that decides on the report seeds, where it was given."""
    return {None: "", True: " --finalize", False: " --no-finalize"}[getattr(arguments, "finalize", None)]


def _going_on(command: str, folder: "StudyFolder | None", arguments: argparse.Namespace) -> str:
    """What goes on with a study; a reproduction goes on where the same is asked for again."""
    if command != REPRODUCE:
        assert folder is not None
        return f"--resume {folder.name}"
    output = f" --output {shlex.quote(str(arguments.output))}" if arguments.output else ""
    return asked_again(arguments) + output


def asked_again(arguments: argparse.Namespace) -> str:
    """The flags of a reproduction that say what is asked for."""
    asked = [("--table", name) for name in arguments.table] + [("--figure", name) for name in arguments.figure]
    asked += [("--scale", arguments.scale), ("--fidelity", arguments.fidelity)]
    asked += [("--seeds", arguments.seeds), ("--data", arguments.data), ("--weights", arguments.weights)]
    asked += [("--set", text) for text in arguments.set]
    words = [word for flag, value in asked if value for word in (flag, shlex.quote(value))]
    flags = [*(["--all"] if arguments.all else []), *(["--skip-bad"] if arguments.skip_bad else [])]
    return " ".join([*flags, *words])
