"""End of a study's command: its exit code, its last message, and the command that resumes the study."""

import contextlib
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from launch.shared.command import say
from launch.studies.requests import ReproductionRequest
from pcl.storage.credentials import shown_uri
from pcl.storage.installation import command
from pcl.studies.execution.interrupt import Stop, StopReason
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.session.request import Runner, RunRequest
from pcl.studies.session.study_session import Client
from pcl.studies.tracking.tracker import StoreError, Tracker

GRID, ABLATE, REPRODUCE = "grid", "ablate", "reproduce"


@dataclass(frozen=True)
class Resumption:
    """A way to resume a command's study or reproduction after an early end."""

    command: str
    run: RunRequest
    again: str = ""  # the flags that ask for the same reproduction again

    def command_line(self, folder: StudyFolder | None = None) -> str:
        """Return the command that resumes a study; a reproduction is resumed by running the same command again."""
        run = self.run
        flags = [*_resources(run), ("--storage", str(run.storage) if str(run.storage) != "runs" else "")]
        flags += [("--tracking-uri", shown_uri(run.tracking_uri or "")), ("--address", run.address or "")]
        flags += [("--runner", run.runner.value if run.runner is not Runner.RAY else "")]
        given = "".join(f" {flag} {shlex.quote(value)}" for flag, value in flags if value)
        finalize = {None: "", True: " --finalize", False: " --no-finalize"}[run.finalize]
        which = self.again if self.command == REPRODUCE or folder is None else f"--resume {folder.name}"
        return f"{command(self.command)} {which}{finalize}{given}"

    def how_to_go_on(self, folder: StudyFolder | None = None) -> str:
        """Return what to do if a command ends before it has opened its study."""
        if folder is not None and not (folder.path / "study.json").exists():
            return "nothing has begun, so run the same command again"
        return f"`{self.command_line(folder)}` goes on"

    def client(self, tracker: Tracker) -> Client:
        """Return the session's client, which prints where to look once MLflow has the study."""
        return Client(say, self.command_line, self.guard, lambda site: _say_addresses(site.dashboard, tracker))

    @contextlib.contextmanager
    def guard(self, folder: StudyFolder) -> Iterator[None]:
        """Add how to resume to an interrupt or error that the study does not handle itself."""
        going_on = self.command_line(folder)
        try:
            with self.mended(going_on):
                yield
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped at once; `{going_on}` goes on") from None
        except Exception as error:
            error.add_note(f"`{going_on}` goes on")  # `launch.shared.command.run` reports unexpected errors
            raise

    @contextlib.contextmanager
    def mended(self, going_on: str) -> Iterator[None]:
        """Exit with a message on how to resume if a disk or MLflow fails."""
        try:
            yield
        except (OSError, StoreError) as error:
            self._exit(f"{error}; once that is fixed, `{going_on}` goes on")

    def leave(self, stop: Stop | None, going_on: str, lacks: str = "") -> None:
        """Exit with an error if the study stopped early or lacks something; otherwise return."""
        if stop is not None and stop.reason is StopReason.SIGNAL:
            raise KeyboardInterrupt(f"{stop}; {going_on} goes on")
        if stop is not None:
            self._exit(f"{stop}; {going_on} goes on")
        if lacks:
            self._exit(lacks)

    def _exit(self, told: str) -> None:
        print(f"{sys.argv[0]}: {told}.", file=sys.stderr)
        sys.exit(1)


def _say_addresses(dashboard: str, tracker: Tracker) -> None:
    if dashboard:
        say(f"Ray dashboard: {dashboard} (if it asks for a token: `ray get-auth-token`)")
    uri = tracker.shown_uri
    if uri.startswith("http"):
        say(f"MLflow UI: {uri.rstrip('/')}/{tracker.trials_page}")
    else:
        say(f"MLflow UI: {Path(sys.executable).parent / 'mlflow'} ui --backend-store-uri {uri}")
        say(f"           then http://127.0.0.1:5000/{tracker.trials_page}")


def _resources(run: RunRequest) -> list[tuple[str, str]]:
    """Return the flags of a trial's resources; studies do not record them, as machines differ."""
    asked, gpus = run.resources, run.resources.gpus
    return [
        ("--cpus-per-trial", "" if asked.cpus == 1 else f"{asked.cpus:g}"),
        ("--gpus-per-trial", "" if isinstance(gpus, str) else f"{gpus:g}"),
        ("--side-by-side", str(asked.side_by_side or "")),
        ("--max-concurrent", str(asked.most_at_once or "")),
    ]


def asked_again(request: ReproductionRequest) -> str:
    """Return the flags of a reproduction that choose what is reproduced, of all rows."""
    config, images = request.config, request.config.images
    asked = [("--table", name) for name in request.tables] + [("--figure", name) for name in request.figures]
    seeds = ",".join(map(str, config.seeds))
    asked += [("--scale", config.scale or ""), ("--fidelity", config.fidelity or ""), ("--seeds", seeds)]
    asked += [("--data", images.data or ""), ("--weights", images.weights or "")]
    asked += [("--set", text) for text in config.setting_texts]
    words = [word for flag, value in asked if value for word in (flag, shlex.quote(value))]
    flags = [*(["--all"] if request.is_all else []), *(["--skip-bad"] if images.is_skip_bad else [])]
    return " ".join([*flags, *words])


def resumed_reproduction(request: ReproductionRequest) -> Resumption:
    """Return the way to resume a reproduction."""
    asked = [("--row", row) for row in request.rows] + ([("--output", str(request.output))] if request.output else [])
    words = [word for flag, value in asked for word in (flag, shlex.quote(value))]
    return Resumption(REPRODUCE, request.run, " ".join([asked_again(request), *words]))
