"""Send a launch command to a Ray cluster.

    python launch/submit.py --address http://HOST:8265 --folder /shared/pcl -- launch/grid.py --space toy_elk

It runs there as a job and no longer needs this machine. The code, the lock file and your own files are sent along;
results are in --folder on the cluster and in MLflow. Exit code 0: the job has succeeded or, with --detach, was sent.
"""

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from launch.shared.command import Parser, run, say
from launch.shared.job_submission import DEFAULT_ADDRESS, end_like, follow, jobs_at, send, show, write

if TYPE_CHECKING:
    from pcl.studies.cluster.jobs import Jobs


def main() -> None:
    """Parse the command line, then send a job or ask about one."""
    words = sys.argv[1:]
    own, command = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    arguments = _parser().parse_args(own)
    asked = [name for name in ("status", "logs", "stop") if getattr(arguments, name)]
    if len(asked) + arguments.list + bool(command) > 1:
        raise ValueError("One of a command, `--status`, `--logs`, `--stop` and `--list` must be given, not several.")
    address = str(arguments.address or os.environ.get("RAY_API_SERVER_ADDRESS") or DEFAULT_ADDRESS)
    if arguments.list:
        _list(jobs_at(address))
    elif not asked:
        send(command, address, arguments.folder, arguments.name, arguments.python, not arguments.detach)
    elif asked == ["stop"]:
        _stop(jobs_at(address), arguments.stop)
    elif asked == ["status"]:
        end_like(jobs_at(address).job(arguments.status))
    elif arguments.wait:
        follow(jobs_at(address), address, arguments.logs)
    else:
        write(jobs_at(address).log(arguments.logs))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__, usage="submit.py [options] -- launch/NAME.py ...")
    parser.add_argument(
        "--address", help=f"address of the dashboard (default: RAY_API_SERVER_ADDRESS, else {DEFAULT_ADDRESS})"
    )
    new = parser.add_argument_group("a new job")
    new.add_argument("--folder", metavar="/FOLDER", help="folder to run in, on a disk that all nodes share; runs/ and "
                     "data/ will be in it (default: the command's absolute `--storage`, unless that is an object "
                     "store)")  # fmt: skip
    new.add_argument("--name", metavar="ID", help="name of the job (default: command and time)")
    new.add_argument("--python", help="interpreter on the cluster (default: python; this one if the "
                     "cluster is on this machine)")  # fmt: skip
    until = new.add_mutually_exclusive_group()
    until.add_argument("--wait", action="store_true", help="show the log until the job ends (default)")
    until.add_argument("--detach", action="store_true", help="return as soon as the job is sent")
    known = parser.add_argument_group("a job that was sent before")
    known.add_argument("--list", action="store_true", help="print all jobs")
    known.add_argument("--status", metavar="ID", help="print its state; exit code 1 if it has failed or was stopped")
    known.add_argument("--logs", metavar="ID", help="print its log; with --wait, until it ends")
    known.add_argument("--stop", metavar="ID", help="stop it as Ctrl-C would: a study can be resumed")
    return parser


def _stop(jobs: "Jobs", name: str) -> None:
    job = jobs.job(name)
    if not job.has_ended:
        jobs.stop(name)
        while not (job := jobs.job(name)).has_ended:
            time.sleep(0.3)
    show(job)


def _list(jobs: "Jobs") -> None:
    for job in jobs.all():
        began = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.started_s))
        what = job.command.rpartition(" -m launch.")[2].replace('"$here"/', "")
        say(f"{job.name:<36}{job.status:<11}{began:<18}{what}")


if __name__ == "__main__":
    run(main)
