"""`--address ray://HOST:PORT` of commands that run studies: the same command, as a job of the cluster at that host.

Ray's own client would run Tune on the cluster too, but out of sight, and end it with this process.
"""

import argparse
import os
import sys
from urllib.parse import urlsplit

from launch.submit import send

_SCHEME, _DASHBOARD = "ray://", 8265  # Ray's own default


def is_sent(arguments: argparse.Namespace, name: str) -> bool:
    """Whether a command is for another machine's cluster; it is then sent there, and followed to its end.

    Args:
        arguments: Of the command line.
        name: Of the launch file, without its ending.

    Raises:
        ValueError: If no dashboard answers there, or results would vanish with the job.
    """
    address = arguments.address or ""
    if not address.startswith(_SCHEME):
        return False
    host = urlsplit(address).hostname
    if not host:
        raise ValueError(f"`--address ray://HOST:PORT` must name a host, but got {address}.")
    if not (arguments.plan or arguments.storage.is_store or arguments.storage.path.is_absolute()):
        raise ValueError(
            f"`--address {address}` sends the command to that cluster, where it leaves nothing in folders of its own: "
            f"give `--storage`, an absolute path that all its nodes share, or a store such as s3://BUCKET."
        )
    shown = f"[{host}]" if ":" in host else host
    dashboard = os.environ.get("RAY_API_SERVER_ADDRESS") or f"http://{shown}:{_DASHBOARD}"
    how = argparse.Namespace(address=dashboard, folder=None, name=None, python=None, detach=False)
    send(how, [f"launch/{name}.py", *_without(address, sys.argv[1:])])
    return True


def _without(address: str, words: list[str]) -> list[str]:
    """A command's words without the option that has the address."""
    left: list[str] = []
    for word in words:
        if word == address:
            left.pop()
        elif not word.endswith(f"={address}"):
            left.append(word)
    return left
