"""A process that has imported torch and its like once and forks Ray's workers: each costs three seconds, not nine.

It is the fork server's child, and ends with it. Ray's nodes reach it through `worker_shim.py`, which they start in
place of Ray's own; the worker is then the shim's foster child. Ray is not imported: it reads the environment while it
is, and every worker has its own. Nor is our code, which a study sends to its workers. A driver that starts a Ray of its
own has workers of its own, too: it ends those that are its descendants.
"""

import ctypes
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from launch.testbed.forks import run_and_exit
from launch.testbed.processes import FOSTER_PARENT

_OURS = ("pcl", "launch", "tests")
_DIES_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_MESSAGE = 2**20


def serve(address: str) -> None:
    """Fork workers until the parent ends; this process does nothing else."""
    ctypes.CDLL(None).prctl(_DIES_WITH_PARENT, signal.SIGKILL)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind("\0" + address)
        door.listen(64)
        while True:
            asker, _ = door.accept()
            with asker, suppress(ConnectionError):
                text, files, _, _ = socket.recv_fds(asker, _MESSAGE, 3)
                if os.fork() == 0:
                    door.close()
                    run_and_exit(partial(_work, text, files))
                for file in files:
                    os.close(file)


def _work(text: bytes, files: list[int]) -> None:
    """Become a worker."""
    words, variables, folder, shim = json.loads(text)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
        del sys.modules[name]
    sys.path[:1] = [str(Path(words[0]).parent), *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    _show({"RAY_TMPDIR": variables.get("RAY_TMPDIR", ""), FOSTER_PARENT: str(shim)})
    sys.argv = words
    runpy.run_path(words[0], run_name="__main__")


def _show(variables: Mapping[str, str]) -> None:
    """Write an environment where others read it, which is the one that the process was started with."""
    begin, end = (int(field) for field in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[47:49])
    text = "".join(f"{name}={value}\0" for name, value in variables.items()).encode()
    assert len(text) <= end - begin
    with open("/proc/self/mem", "r+b", buffering=0) as memory:
        memory.seek(begin)
        memory.write(text.ljust(end - begin, b"\0"))
