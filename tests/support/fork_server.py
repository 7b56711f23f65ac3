"""A server that has imported torch, MLflow and Ray and forks commands: `python -m tests.support.fork_server FOLDER`.

A command costs what it does, not what it imports. One server is for all processes of a test run, and ends with the last
of them. Ray reads the environment while it is imported: a command with another RAY_AUTH_MODE is started, not forked.
MLflow's database is copied from one that was made once; the migrations have their own tests.
"""

import contextlib
import hashlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from filelock import FileLock

from launch.testbed.forks import THIRD_PARTY, Forked, become, empty, get_ready
from launch.testbed.processes import ROOT, Started, started, wait_for
from pcl.studies.cluster import session
from tests.support import worker_nursery
from tests.support.worker_shim import VARIABLE, seen_here

# Beside what others need.
_PRELOADED = ("launch.studies.ablate_command", "launch.reproduction.command", "tests.support.made_once")
_LOCK = "lock"  # in the common folder: held by who starts a server, and by a server that ends
_MESSAGE = 2**20  # bytes; an environment has some thousand
_MODE = "RAY_AUTH_MODE"


common_folder = Path()  # of all processes of a test run; set when one begins


def share(folder: Path) -> None:
    """Let all processes of a test run use the same server, and Ray's nodes the workers that it forks."""
    global common_folder  # noqa: PLW0603  one of each process
    common_folder = folder
    os.environ[VARIABLE] = f"{_address(folder)[1:]}-workers {seen_here()}"


class ForkServer:
    """The server, seen from one of the processes that it serves; the first starts it."""

    def __init__(self, folder: Path) -> None:
        self._codes: dict[int, int] = {}
        with FileLock(folder / _LOCK):
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if not self._connects(folder):
                words = [sys.executable, "-m", "tests.support.fork_server", str(folder)]
                one_thread = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # others would not be there after a fork
                self._process = subprocess.Popen(
                    words, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True, env=os.environ | one_thread
                )
                wait_for(lambda: self._process.poll() is not None or self._connects(folder), "the fork server answers")
                assert self._process.poll() is None, "the fork server has ended"

    def _connects(self, folder: Path) -> bool:
        return not self._socket.connect_ex(_address(folder))

    def start(self, words: list[str], output: Path, environment: Mapping[str, str]) -> "ForkedByServer":
        """Start `python WORDS` in the checkout."""
        self._socket.send(json.dumps([words, str(output), dict(environment)]).encode())
        while (pid := self._read()) is None:
            pass
        return ForkedByServer(self, pid)

    def code(self, pid: int, timeout_s: float | None = 0.0) -> int | None:
        """Return a command's exit code, or None where it has not ended in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while pid not in self._codes:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            if not select.select([self._socket], [], [], left)[0]:
                return None
            self._read()
        return self._codes[pid]

    def _read(self) -> int | None:
        """Read a message: a command that has started, which is returned, or has ended."""
        text = self._socket.recv(_MESSAGE)
        assert text, "the fork server has ended"
        pid, code = json.loads(text)
        if code is None:
            self._codes.pop(pid, None)  # numbers of processes are used again
            return int(pid)
        self._codes[pid] = code
        return None


class ForkedByServer(Forked):
    """A command that the server has forked, which alone can wait for it."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        super().__init__(pid)
        self._server = server

    def poll(self) -> int | None:
        self.returncode = self._server.code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self.returncode = self._server.code(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.returncode


@cache
def server() -> ForkServer:
    """Return the server, which is started now where it does not run."""
    return ForkServer(common_folder)


def forked(words: Sequence[str | Path], output: Path, environment: Mapping[str, str]) -> Started:
    """Start `python WORDS` as `launch.testbed.processes.started` does."""
    if environment.get(_MODE, "token") != "token":
        return started([sys.executable, *words], output, environment)
    empty(output)
    return Started(server().start([str(word) for word in words], output, environment), output)  # type: ignore[arg-type]


def _serve(door: socket.socket, folder: Path) -> None:
    """Fork a command for each request, and tell who asked how each ended; end with the last who asks."""
    reader, writer = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    askers: list[socket.socket] = []
    running: dict[int, socket.socket] = {}
    starter = os.getppid()
    while not select.select([door], [], [], 1)[0]:
        if os.getppid() != starter:  # killed before it could ask
            return
    askers.append(door.accept()[0])
    while askers or not _closed(door, folder):
        ready, _, _ = select.select([door, reader, *askers], [], [])
        if reader in ready:
            os.read(reader, _MESSAGE)
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            with contextlib.suppress(OSError):  # who asked may have gone
                running.pop(ended[0]).send(json.dumps([ended[0], os.waitstatus_to_exitcode(ended[1])]).encode())
        for asker in [asker for asker in askers if asker in ready]:
            text = b""
            with contextlib.suppress(ConnectionError):  # it was killed
                text = asker.recv(_MESSAGE)
            if not text:
                askers.remove(asker)
                continue
            check_forkable()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for number in (door.fileno(), reader, writer, *(asker.fileno() for asker in askers)):
                    os.close(number)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                words, output, environment = json.loads(text)
                _make_quick(folder, environment)
                become(words, Path(output), environment)
            running[pid] = asker
            with contextlib.suppress(OSError):
                asker.send(json.dumps([pid, None]).encode())
        if door in ready:
            askers.append(door.accept()[0])


def _make_quick(folder: Path, environment: Mapping[str, str]) -> None:
    """Let a command copy MLflow's database, and start a lean Ray where it is to have no dashboard."""
    from tests.support import lean_ray, made_once  # noqa: PLC0415  Ray and our code, which the nursery does without

    made_once.copy_mlflow_databases(folder)
    if environment.get(session.DASHBOARD) == "0":
        lean_ray.make_lean()


def _closed(door: socket.socket, folder: Path) -> bool:
    """Close the door, unless somebody stands before it."""
    with FileLock(folder / _LOCK):
        if select.select([door], [], [], 0)[0]:
            return False
        door.close()
        return True


def _address(folder: Path) -> str:
    """Return a server's address: an abstract one, however long the folder's path is."""
    return f"\0pcl-forks-{hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]}"


def check_forkable() -> None:
    """See that a fork loses no thread: jemalloc starts its own again."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    assert threading.active_count() == 1, threading.enumerate()
    assert len([name for name in names if name != "jemalloc_bg_thd"]) == 1, names


def import_ray(environment: Mapping[str, str]) -> None:
    """Import Ray in an environment, but let it draw no number.

    The generator of its names is seeded by its first: after a fork, all processes would have the same names.
    """
    assert "ray" not in sys.modules, "our code imports Ray before it is needed"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        actor = importlib.import_module("ray.actor")
        kind = actor.ActorClassID
        patch.setattr(actor, "ActorClassID", SimpleNamespace(from_random=lambda: kind(os.urandom(kind.size()))))
        importlib.import_module("ray.tune")


def _main() -> None:
    folder = Path(sys.argv[1])
    get_ready(THIRD_PARTY)
    if os.fork() == 0:
        worker_nursery.serve(os.environ[VARIABLE].partition(" ")[0])
    get_ready()
    for name in _PRELOADED:
        importlib.import_module(name)
    import_ray({**session._ENVIRONMENT, **session._TO_START, _MODE: "token"})  # as a study does
    from pcl.training.run import Run  # noqa: PLC0415
    from tests.support.smoke import smoke  # noqa: PLC0415

    Run(smoke(), (1,))  # whose tables are made once a process
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(_address(folder))
        door.listen()
        _serve(door, folder)


if __name__ == "__main__":
    _main()
