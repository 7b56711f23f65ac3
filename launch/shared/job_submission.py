"""Submission of a launch command to a Ray cluster as a job, and following it.

Studies with `--address ray://HOST:PORT` are sent this way too: with Ray's own client, the study would end with this
process.
"""

import os
import re
import shlex
import sys
import tempfile
import time
import uuid
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from launch.shared.command import say
from launch.shared.job_package import parcel
from pcl.storage.installation import command
from pcl.studies.ledger.study_storage import Storage

if TYPE_CHECKING:
    from pcl.studies.cluster.jobs import Job, Jobs

_HERE = ("127.0.0.1", "localhost", "::1")
_PORT = 8265  # of the dashboard, Ray's own default
DEFAULT_ADDRESS = f"http://127.0.0.1:{_PORT}"
_SCHEME = "ray://"

write = partial(print, end="", flush=True)  # a part of a job's log


def jobs_at(address: str) -> "Jobs":
    """Return the jobs of a cluster."""
    from pcl.studies.cluster.jobs import Jobs  # noqa: PLC0415  -h answers at once

    return Jobs(address)


def send(
    command: list[str], address: str, folder: str | None = None, name: str | None = None, python: str | None = None,
    is_followed: bool = True,
) -> None:  # fmt: skip
    """Send a command, such as launch/grid.py --space toy_elk, to the dashboard of a cluster as a job.

    It starts in the folder, by default its absolute `--storage`. The job's default name is made of command and time.
    A ValueError says why a command cannot be sent.
    """
    sent = parcel(command, folder, os.environ.get("MLFLOW_TRACKING_URI", ""))
    name = name or f"{sent.name}-{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:4]}"
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name):
        raise ValueError(f"`--name` must be letters, digits, '-', '_' and '.', but got {name!r}.")
    jobs = jobs_at(address)
    python = python or (sys.executable if urlsplit(jobs.address).hostname in _HERE else "python")
    with tempfile.TemporaryDirectory(prefix="pcl-parcel-") as packed:
        sent.pack(Path(packed))
        jobs.submit(sent.command(python), Path(packed), name, sent.title)
    say(f"sent: {name} to {jobs.address}")
    for what in ("--status", "--logs", "--stop"):
        say(f"  {_asking(address, what, name)}{' --wait' if what == '--logs' else ''}")
    if is_followed:
        follow(jobs, address, name)


def follow(jobs: "Jobs", address: str, name: str) -> None:
    """Show a job's log until it ends; Ctrl-C stops showing it, not the job."""
    again = f"`{_asking(address, '--logs', name)} --wait` shows it again"
    try:
        job = jobs.follow(name, write)
    except KeyboardInterrupt:
        stopping = f"`{_asking(address, '--stop', name)}` stops it"
        raise KeyboardInterrupt(f"the job {name} goes on; {again}, {stopping}") from None
    except ConnectionError as error:
        raise ConnectionError(f"{error} The job may well go on; {again}.") from None
    end_like(job)


def show(job: "Job") -> None:
    """Print the state of a job."""
    seconds = (job.ended_s or time.time()) - job.started_s
    why = f": {job.message}" if job.status == "FAILED" and job.message else ""
    say(f"{job.name}: {job.status} after {seconds:.0f} s{why}")


def end_like(job: "Job") -> None:
    """Print the state of a job, and exit with 1 if it failed or was stopped."""
    show(job)
    if job.status in ("FAILED", "STOPPED"):
        sys.exit(1)


def _asking(address: str, what: str, name: str) -> str:
    given = f" --address {shlex.quote(address)}" if address != DEFAULT_ADDRESS else ""
    return f"{command('submit')}{given} {what} {name}"


def is_sent(name: str, address: str | None, storage: Storage, is_plan: bool) -> bool:
    """Send this command to a remote cluster if `--address` asks for that, and follow it; return whether it was sent."""
    if address is None or not address.startswith(_SCHEME):
        return False
    host = urlsplit(address).hostname
    if not host:
        raise ValueError(f"`--address ray://HOST:PORT` must name a host, but got {address}.")
    if not (is_plan or storage.is_store or storage.path.is_absolute()):
        raise ValueError(
            f"`--address {address}` sends the command to that cluster, where nothing in the job's own folders is kept: "
            f"give `--storage`, an absolute path that all its nodes share, or a store such as s3://BUCKET."
        )
    shown = f"[{host}]" if ":" in host else host
    dashboard = os.environ.get("RAY_API_SERVER_ADDRESS") or f"http://{shown}:{_PORT}"
    words = [f"launch/{name}.py"]
    for word in sys.argv[1:]:  # all but the option that has the address
        if word == address:
            words.pop()
        elif not word.endswith(f"={address}"):
            words.append(word)
    send(words, dashboard)
    return True
