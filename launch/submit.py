"""Send a launch command to a Ray cluster.

    python launch/submit.py --address http://HOST:8265 --folder /shared/pcl -- launch/grid.py --space toy_elk

It becomes a job, which needs this machine no longer. Code, lock and the space travel with it; results are on the
cluster, in --folder, and in MLflow. Exit code 0 means that the job has succeeded, or with --detach that it was sent.
"""

import argparse
import os
import re
import shlex
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from launch.command import Parser, run, say
from launch.parcel import parcel

if TYPE_CHECKING:
    from pcl.studies.jobs import Job, Jobs

_ADDRESS = "http://127.0.0.1:8265"  # Ray's own default
_HERE = ("127.0.0.1", "localhost", "::1")


def main() -> None:
    """Parse the command line, then send a job or ask about one."""
    words = sys.argv[1:]
    own, command = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    arguments = _parser().parse_args(own)
    asked = [name for name in ("status", "logs", "stop") if getattr(arguments, name)]
    if len(asked) + arguments.list + bool(command) > 1:
        raise ValueError("One of a command, `--status`, `--logs`, `--stop` and `--list` must be given, not several.")
    if arguments.list:
        _list(_jobs(arguments))
    elif not asked:
        send(arguments, command)
    elif asked == ["stop"]:
        _stop(_jobs(arguments), arguments.stop)
    elif asked == ["status"]:
        _leave(_shown(_jobs(arguments).job(arguments.status)))
    else:
        _logs(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="submit.py", usage="submit.py [options] -- launch/NAME.py ...", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--address", help=f"of the dashboard (default: RAY_API_SERVER_ADDRESS, else {_ADDRESS})")
    new = parser.add_argument_group("a new job")
    new.add_argument("--folder", metavar="/PATH", help="where the command starts, on a disk that all nodes share: "
                     "runs/ and data/ will be in it (default: the command's absolute `--storage`, unless that is a "
                     "store)")  # fmt: skip
    new.add_argument("--name", metavar="ID", help="of the job (default: command and time)")
    new.add_argument("--python", help="on the cluster (default: python, or this one where it is there)")
    until = new.add_mutually_exclusive_group()
    until.add_argument("--wait", action="store_true", help="show what it says until it ends (default)")
    until.add_argument("--detach", action="store_true", help="leave as soon as it is sent")
    known = parser.add_argument_group("a job that was sent")
    known.add_argument("--list", action="store_true", help="print all jobs")
    known.add_argument("--status", metavar="ID", help="how it goes; the exit code is the job's once it has ended")
    known.add_argument("--logs", metavar="ID", help="what it has said; with --wait until it ends")
    known.add_argument("--stop", metavar="ID", help="end it as Ctrl-C would: a study can be resumed")
    return parser


def _address(arguments: argparse.Namespace) -> str:
    return str(arguments.address or os.environ.get("RAY_API_SERVER_ADDRESS") or _ADDRESS)


def _jobs(arguments: argparse.Namespace) -> "Jobs":
    from pcl.studies.jobs import Jobs  # noqa: PLC0415  -h answers at once

    return Jobs(_address(arguments))


def send(arguments: argparse.Namespace, command: list[str]) -> None:
    """Send a command as a job, and follow it unless it is detached.

    Args:
        arguments: Of this command line.
        command: Such as launch/grid.py --space toy_elk.

    Raises:
        ValueError: If it cannot be sent.
    """
    sent = parcel(command, arguments.folder, os.environ.get("MLFLOW_TRACKING_URI", ""))
    name = arguments.name or f"{sent.name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ValueError(f"`--name` must be letters, digits, '-', '_' and '.', but got {name!r}.")
    jobs = _jobs(arguments)
    python = arguments.python or (sys.executable if urlsplit(jobs.address).hostname in _HERE else "python")
    with tempfile.TemporaryDirectory(prefix="pcl-parcel-") as folder:
        sent.pack(Path(folder))
        jobs.submit(sent.command(python), Path(folder), name, sent.title)
    say(f"sent: {name} to {jobs.address}")
    for what in ("--status", "--logs", "--stop"):
        say(f"  {_asking(arguments, what, name)}{' --wait' if what == '--logs' else ''}")
    if not arguments.detach:
        _follow(arguments, jobs, name)


def _logs(arguments: argparse.Namespace) -> None:
    jobs = _jobs(arguments)
    if arguments.wait:
        _follow(arguments, jobs, arguments.logs)
    else:
        _write(jobs.log(arguments.logs))


def _follow(arguments: argparse.Namespace, jobs: "Jobs", name: str) -> None:
    """Show what a job says; whoever stops looking does not stop it."""
    again = f"`{_asking(arguments, '--logs', name)} --wait` shows it again"
    try:
        job = jobs.follow(name, _write)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"the job {name} goes on; {again}, `{_asking(arguments, '--stop', name)}` stops it"
        ) from None
    except ConnectionError as error:
        raise ConnectionError(f"{error} The job may well go on; {again}.") from None
    _leave(_shown(job))


def _stop(jobs: "Jobs", name: str) -> None:
    job = jobs.job(name)
    if not job.has_ended:
        jobs.stop(name)
        while not (job := jobs.job(name)).has_ended:
            time.sleep(0.3)
    _shown(job)


def _list(jobs: "Jobs") -> None:
    for job in jobs.all():
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.started_s))
        say(f"{job.name:<36}{job.status:<11}{began:<18}{_what(job)}")


def _shown(job: "Job") -> "Job":
    seconds = (job.ended_s or time.time()) - job.started_s
    why = f": {job.message}" if job.status == "FAILED" and job.message else ""
    say(f"{job.name}: {job.status} after {seconds:.0f} s{why}")
    return job


def _what(job: "Job") -> str:
    """Of a job's command, what it runs."""
    return job.command.rpartition(" -m launch.")[2].replace('"$here"/', "")


def _leave(job: "Job") -> None:
    if job.status in ("FAILED", "STOPPED"):
        sys.exit(1)


def _asking(arguments: argparse.Namespace, what: str, name: str) -> str:
    address = _address(arguments)
    given = f" --address {shlex.quote(address)}" if address != _ADDRESS else ""
    return f"python launch/submit.py{given} {what} {name}"


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


if __name__ == "__main__":
    run(main)
