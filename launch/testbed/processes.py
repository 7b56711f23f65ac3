"""Processes that benchmarks and tests start, watch and end: our commands, an MLflow server."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
DEADLINE_S = 900.0  # for what takes seconds, on a slow and busy machine
FOSTER_PARENT = "PCL_FOSTER_PARENT"  # variable of a process whose parent only forks
_FIRST_PORT = 20_000  # above the ports of Ray's workers
_CLAIMED: list[socket.socket] = []  # a name for every port that this process was given, released when it ends


def wait_for(is_so: Callable[[], Any], what: str, timeout_s: float = DEADLINE_S) -> None:
    """Poll every twentieth of a second until a condition holds; raise a TimeoutError if it takes too long."""
    deadline = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {timeout_s:g} s still not: {what}")
        time.sleep(0.05)


def free_port() -> int:
    """Return a port that nobody listens on and no one else is given.

    It is not one of the ephemeral ports that the kernel hands out, such as to Ray's processes and to clients, and no
    other caller of this function gets it while this process lives.
    """
    first_of_kernel = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(_FIRST_PORT, max(first_of_kernel, _FIRST_PORT + 10_000))
    for _ in ports:
        port, claim = random.SystemRandom().choice(ports), socket.socket(socket.AF_UNIX)
        try:
            claim.bind(f"\0pcl-port-{port}")
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", port))
        except OSError:
            claim.close()
            continue
        _CLAIMED.append(claim)
        return port
    raise OSError(f"no port from {ports.start} to {ports.stop} is free")


@dataclass
class Started:
    """Process of one of our commands; its output goes to files, so that it never waits for a reader."""

    process: subprocess.Popen[bytes]
    output: Path

    @property
    def said(self) -> str:
        return self.output.read_text()

    @property
    def errors(self) -> str:
        return self.output.with_suffix(".err").read_text()

    def ended(self, code: int = 0, timeout_s: float = 2 * DEADLINE_S) -> Self:
        """Wait for the end; require this exit code and no traceback."""
        self.process.wait(timeout_s)
        told = f"{self.said}\n{self.errors}"
        if self.process.returncode != code or "Traceback" in told:
            raise AssertionError(f"exit code {self.process.returncode}, not {code}: {told}")
        return self

    def interrupt(self) -> None:
        """Interrupt every process of the group, as a terminal's Ctrl-C does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def kill(self) -> None:
        """Kill only this process."""
        self.process.kill()
        self.process.wait(DEADLINE_S)


def started(command: Sequence[str | Path], output: Path, environment: Mapping[str, str]) -> Started:
    """Start a command in the checkout, in a session of its own."""
    with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
        process = subprocess.Popen(
            [str(word) for word in command], cwd=ROOT, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
            start_new_session=True, env=dict(environment),
            # If this process runs in a shell's background, Ctrl-C is ignored, and the child would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  no threads here
        )  # fmt: skip
    return Started(process, output)


def processes_of(folder: Path) -> list[int]:
    """Return all processes of the Ray with this temporary folder, found in their environment."""
    mark, found = f"\0RAY_TMPDIR={folder}\0".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):  # Path objects would triple the time, and this is polled
        with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if mark in b"\0" + file.read() and int(name) != os.getpid():
                found.append(int(name))
    return found


def workers_among(pids: Iterable[int]) -> list[int]:
    """Return the workers that have a trial."""
    return [pid for pid in pids if command_of(pid).startswith("ray::ImplicitFunc")]


def descendants(pid: int, among: Iterable[int]) -> list[int]:
    """Return a process and all its descendants."""
    parents = {other: parent_of(other) for other in among}
    found = {pid}
    while more := {other for other, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def parent_of(pid: int) -> int:
    """Return a process's parent: the one that its environment names, if any; 0 if it has ended."""
    with contextlib.suppress(OSError, ValueError):
        given = Path(f"/proc/{pid}/environ").read_bytes().partition(f"\0{FOSTER_PARENT}=".encode())[2]
        return int(given.partition(b"\0")[0])
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those processes that still exist."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def stop_when(pids: Callable[[], list[int]], is_so: Callable[[], Any], what: str) -> list[int]:
    """Stop processes as soon as a condition holds; return them, so that SIGCONT can continue them.

    They are stopped for every check, so that the condition still holds when this returns, however busy the machine. If
    it takes too long, they continue and a TimeoutError is raised.
    """
    stopped: list[int] = []

    def is_so_while_they_stand() -> bool:
        stopped[:] = pids()
        signal_all(stopped, signal.SIGSTOP)
        while not all(map(_stands, stopped)):
            time.sleep(0.001)
        if is_so():
            return True
        signal_all(stopped, signal.SIGCONT)
        return False

    wait_for(is_so_while_they_stand, what)
    return stopped


def _stands(pid: int) -> bool:
    """Return whether all threads of a process are stopped."""
    try:
        states = [file.read_text().rpartition(")")[2].split()[0] for file in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:  # a thread has ended meanwhile
        return not Path(f"/proc/{pid}").exists()
    return set(states) <= set("TtZX")


def command_of(pid: int) -> str:
    """Return a process's command line; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


@dataclass
class Server:
    """MLflow server that can be killed and restarted on the same port."""

    folder: Path  # of its database, its files and its log
    port: int = field(default_factory=free_port)  # on loopback
    prefix: tuple[str, ...] = ()  # words that run a command elsewhere, such as in another network
    database: str = ""  # its address; by default a file in the folder
    process: subprocess.Popen[bytes] | None = None  # while it runs

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __post_init__(self) -> None:
        self.database = self.database or f"sqlite:///{self.folder / 'server.db'}"

    def start(self) -> None:
        """Start the server; return once it answers."""
        command = [
            *self.prefix, sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port),
            "--workers", "1", "--backend-store-uri", self.database, "--artifacts-destination",
            str(self.folder / "served"),
        ]  # fmt: skip
        environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, env=environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        process, url = self.process, f"{self.uri}/health"
        wait_for(lambda: process.poll() is not None or answers(url, self.prefix), "the MLflow server answers")
        if process.poll() is not None:
            raise OSError(f"The MLflow server has ended; see {self.folder / 'server.log'}.")

    def kill(self) -> None:
        """Kill the server with all its processes."""
        if self.process is not None:
            kill_group(self.process)

    @contextlib.contextmanager
    def running(self, delay_s: float) -> Iterator[str]:
        """Start the server, behind a slow proxy if there is a delay; yield its address, and kill both at the end."""
        port, proxy = free_port() if delay_s else self.port, None
        address = f"http://127.0.0.1:{port}"
        try:
            self.start()
            if delay_s:
                words = ["-m", "launch.testbed.proxy", str(port), str(self.port), str(delay_s)]
                command, environment = [*self.prefix, sys.executable, *words], {**os.environ, "PYTHONPATH": str(ROOT)}
                proxy = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
                wait_for(lambda: answers(f"{address}/health", self.prefix, 2 * delay_s), "the proxy answers")
            yield address
        finally:
            self.kill()
            if proxy is not None:
                kill_group(proxy)


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill all processes of the group that a process leads."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(DEADLINE_S)


_ASK = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=float(sys.argv[2]))"


def answers(url: str, prefix: tuple[str, ...] = (), timeout_s: float = 2.0) -> bool:
    """Return whether an HTTP server answers a request sent from where `prefix` runs commands."""
    if prefix:
        command = [*prefix, sys.executable, "-c", _ASK, url, str(timeout_s)]
        return not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        with urllib.request.urlopen(url, timeout=timeout_s) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
