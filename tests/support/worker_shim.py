"""A stand-in for Ray's `setup_worker.py`, which asks for a worker that is forked, and ends with it.

A worker with an interpreter or a folder of its own, as a job's is, starts as Ray would start it, and so does one on a
node that sees other files or another network.
"""

import json
import os
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

VARIABLE = "PCL_TEST_WORKERS"  # the address of the process that forks them, and what it sees
SETUP = "setup_worker.py"
_CONTEXT = "--serialized-runtime-env-context="
_PLAIN = {"command_prefix", "override_worker_entrypoint", "java_jars"}  # of a context; empty where it is plain


def seen_here() -> str:
    """Return which files and which network this process sees."""
    return " ".join(os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "net"))


def main() -> NoReturn:
    """Ask for the worker that the command line describes, and wait for its end; else become it."""
    words, (address, _, seen) = sys.argv[1:], os.environ.get(VARIABLE, "").partition(" ")
    texts = [word.removeprefix(_CONTEXT) for word in words if word.startswith(_CONTEXT)]
    context: dict[str, Any] = json.loads((texts or ["{}"])[0] or "{}")
    variables = {**os.environ, **context.get("env_vars", {})}
    is_ours = context.get("py_executable", sys.executable) == sys.executable
    is_plain = not any(context.get(name) for name in _PLAIN)
    if seen == seen_here() and is_ours and is_plain:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            if not door.connect_ex("\0" + address):
                after = [word for word in words if not word.startswith((_CONTEXT, "--language="))]
                told = json.dumps([after, variables, os.getcwd(), os.getpid()]).encode()
                socket.send_fds(door, [told], [0, 1, 2])
                door.recv(1)  # nothing, at the worker's end
                os._exit(0)
    import ray  # noqa: PLC0415  takes a second

    setup = Path(ray.__file__).parent / "_private" / "workers" / SETUP
    os.execv(sys.executable, [sys.executable, str(setup), *words])


if __name__ == "__main__":
    main()
