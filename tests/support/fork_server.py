"""A server that has imported torch and MLflow once and forks our commands: `python -m tests.support.fork_server FD`.

A command costs what it does, not what it imports. Ray is not imported: it reads the environment while it is, and a
command has its own. MLflow's database is copied from one that was made once; the migrations have their own tests.
"""

import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

from launch.testbed.processes import ROOT, Started

_PRELOADED = (
    "torch", "torchvision", "pandas", "pyarrow.fs", "pyarrow.parquet", "scipy.stats", "matplotlib.pyplot", "optuna",
    "optuna.storages", "mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.artifact.local_artifact_repo", "requests", "launch.studies.grid_command",
    "launch.studies.ablate_command", "launch.reproduction.command", "pcl.studies.execution.worker",
    "pcl.studies.execution.inline_runner", "pcl.studies.report.figures",
)  # fmt: skip
_MESSAGE = 2**20  # bytes; an environment has some thousand


class ForkServer:
    """The server, seen from the process that has started it; it ends with that process."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())]
            self._process = subprocess.Popen(
                words, cwd=ROOT, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True
            )
        self._ended: dict[int, int] = {}
        assert self._socket.recv(_MESSAGE) == b"ready"

    def start(self, words: Sequence[str], output: Path, environment: Mapping[str, str]) -> "Forked":
        """Start `python WORDS` in the checkout."""
        request = {"words": list(words), "output": str(output), "environment": dict(environment)}
        self._socket.send(json.dumps(request).encode())
        while (answer := self._read(None)) is None or "started" not in answer:
            pass
        return Forked(self, answer["started"])

    def code(self, pid: int, timeout_s: float | None = 0.0) -> int | None:
        """Return a command's exit code, or None where it has not ended in time."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while pid not in self._ended:
            if self._read(None if deadline is None else max(0.0, deadline - time.monotonic())) is None:
                break
        return self._ended.get(pid)

    def _read(self, timeout_s: float | None) -> dict[str, int] | None:
        if not select.select([self._socket], [], [], timeout_s)[0]:
            return None
        text = self._socket.recv(_MESSAGE)
        if not text:
            raise ChildProcessError("the fork server has ended")
        answer: dict[str, int] = json.loads(text)
        if "ended" in answer:
            self._ended[answer["ended"]] = answer["code"]
        return answer


class Forked:
    """A forked command, with those methods of `subprocess.Popen` that tests use."""

    def __init__(self, server: ForkServer, pid: int) -> None:
        self._server, self.pid, self.returncode = server, pid, None

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        self.returncode = self._server.code(self.pid) if self.returncode is None else self.returncode
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.poll() is None:
            self.returncode = self._server.code(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


@cache
def _server() -> ForkServer:
    return ForkServer()


def forked(words: Sequence[str | Path], output: Path, environment: Mapping[str, str]) -> Started:
    """Start `python WORDS` as `launch.testbed.processes.started` does."""
    for path in (output, output.with_suffix(".err")):
        path.write_bytes(b"")
    return Started(_server().start([str(word) for word in words], output, environment), output)  # type: ignore[arg-type]


def _serve(control: socket.socket, template: Path) -> None:
    """Fork a command for each request, and tell how each ended."""
    reader, writer = socket.socketpair()
    for end in (reader, writer):
        end.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([control, reader], [], [])
        if reader in ready:
            reader.recv(_MESSAGE)
            for pid, code in _ended():
                control.send(json.dumps({"ended": pid, "code": code}).encode())
        if control in ready:
            text = control.recv(_MESSAGE)
            if not text:
                return
            _check_forkable()
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                for end in (control, reader, writer):
                    end.close()
                _become(**json.loads(text), template=template)
            control.send(json.dumps({"started": pid}).encode())


def _ended() -> list[tuple[int, int]]:
    found = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found.append((pid, os.waitstatus_to_exitcode(status)))


def _check_forkable() -> None:
    """See that no thread is lost by a fork: jemalloc starts its own again."""
    names = [Path(f"/proc/self/task/{task}/comm").read_text().strip() for task in os.listdir("/proc/self/task")]
    assert threading.active_count() == 1, threading.enumerate()
    assert len([name for name in names if name != "jemalloc_bg_thd"]) == 1, names
    assert "ray" not in sys.modules


def _become(words: list[str], output: str, environment: dict[str, str], template: Path) -> None:
    """Run a command in this process; as of any other, its end is the interpreter's."""
    os.setsid()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    files = [os.open(os.devnull, os.O_RDONLY), os.open(output, flags), os.open(Path(output).with_suffix(".err"), flags)]
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(environment)
    _copy_databases(template)
    sys.argv = words if words[0] != "-m" else words[1:]
    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")
    sys.exit(0)


def _copy_databases(template: Path) -> None:
    """Let databases of MLflow be copies, which takes no seconds."""
    from pcl.studies.tracking import database_creation  # noqa: PLC0415

    def copy(path: Path, artifacts: Path) -> None:
        shutil.copy(template, path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update experiments set artifact_location = ? || '/0'", (artifacts.as_uri(),))

    database_creation._make = copy


def _main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in _PRELOADED:
        importlib.import_module(name)
    from pcl.studies.tracking.database_creation import _make  # noqa: PLC0415
    from pcl.training.run import Run  # noqa: PLC0415
    from tests.support.smoke import smoke  # noqa: PLC0415

    Run(smoke(), (1,))  # whose tables are made once a process

    folder, own = Path(tempfile.mkdtemp(prefix="pcl-")), os.getpid()
    try:
        maker = os.fork()
        if maker == 0:
            _make(folder / "template.db", folder)
            os._exit(0)
        assert os.waitpid(maker, 0)[1] == 0
        control.send(b"ready")
        _serve(control, folder / "template.db")
    finally:
        if os.getpid() == own:  # a command that ends comes here too
            shutil.rmtree(folder)


if __name__ == "__main__":
    _main()
