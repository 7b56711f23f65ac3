"""Ray clusters of several nodes on this machine, each in a network namespace with its own address if allowed."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from launch.testbed.processes import (
    DEADLINE_S,
    ROOT,
    Started,
    descendants,
    free_port,
    processes_of,
    signal_all,
    started,
    wait_for,
    workers_among,
)

_STARTED = "Ray runtime started"
_MOST_TRIES = 4


class Network:
    """Network namespaces joined by a bridge in its own namespace; raises an OSError if that is not allowed."""

    def __init__(self) -> None:
        self._name = f"pcl{uuid.uuid4().hex[:6]}"
        self._places: list[str] = []
        self._switch = f"{self._name}-net"
        try:
            self._ip("netns", "add", self._switch)
            self._ip("-n", self._switch, "link", "add", "bridge0", "type", "bridge")
            self._ip("-n", self._switch, "link", "set", "bridge0", "up")
        except BaseException as error:  # including Ctrl-C
            self.close()
            if isinstance(error, subprocess.CalledProcessError):
                raise OSError(f"no network namespaces: {error}") from None
            raise

    def join(self, place: str) -> str:
        """Create a namespace; return its address."""
        space, port = self._space(place), f"p{len(self._places)}"
        self._places.append(place)
        address = f"10.77.0.{len(self._places)}"
        self._ip("netns", "add", space)
        self._ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", space)
        self._ip("-n", self._switch, "link", "set", port, "master", "bridge0", "up")
        self._ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            self._ip("-n", space, "link", "set", link, "up")
        return address

    def prefix(self, place: str) -> tuple[str, ...]:
        """Return the words that run a command in a namespace."""
        return ("ip", "netns", "exec", self._space(place))

    def connect(self, place: str, is_joined: bool) -> None:
        """Cut a namespace from the bridge, or join it again."""
        self._ip("-n", self._switch, "link", "set", f"p{self._places.index(place)}", "up" if is_joined else "down")

    def close(self) -> None:
        """Remove all namespaces; their processes must have ended."""
        for space in [*map(self._space, self._places), self._switch]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)

    def _space(self, place: str) -> str:
        return f"{self._name}-{place}"

    @staticmethod
    def _ip(*words: str) -> None:
        subprocess.run(["ip", *words], capture_output=True, check=True)


@dataclass
class Cluster:
    """Ray cluster whose nodes do not see this checkout: what they need has to be sent."""

    folder: Path  # of all files; short, as paths of Ray's sockets have at most 107 bytes
    port: int = field(default_factory=free_port)  # of the head
    dashboard: int = field(default_factory=free_port)  # port
    token: str = field(default_factory=lambda: uuid.uuid4().hex)  # that Ray requires
    n_cpus: int = 1  # of a node, by default
    network: Network | None = None  # with an address for each node; None puts all on loopback
    nodes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)  # the parent of each node's other processes
    host: str = "127.0.0.1"  # the head's address
    n_started: int = 0  # commands so far
    ray: Path = Path(sys.executable).parent / "ray"  # the command that starts nodes

    @property
    def address(self) -> str:
        """Return the `--address` of a command that runs on the head's node."""
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.dashboard}"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_"))}
        return {
            **kept, "RAY_TMPDIR": str(self.folder), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_timeout_ms": "3000",  # as the clusters of launch/cluster/
            "RAY_raylet_start_wait_time_s": "60", "RAY_gcs_server_port_wait_time_s": "120",  # on a busy machine
        }  # fmt: skip

    @property
    def prefix(self) -> tuple[str, ...]:
        """Return the words that run a command on the head's node."""
        return self.network.prefix("head") if self.network else ()

    def start(self, n_cpus: int | None = None, *, has_dashboard: bool = True, **environment: str) -> None:
        """Start the head; it starts sooner without a dashboard, which only jobs and people need."""
        options = [
            "--head", f"--port={self.port}", f"--dashboard-port={self.dashboard}", "--dashboard-host=127.0.0.1",
            f"--include-dashboard={has_dashboard}",
        ]  # fmt: skip
        options += [f"--ray-client-server-port={free_port()}"] if has_dashboard else []
        self.host = self._start_node("head", options, n_cpus, environment)

    def add_node(self, name: str, before: str = "", n_cpus: int | None = None, **environment: str) -> None:
        """Add a node; the command `before` runs first, where only this node sees its effect."""
        self._start_node(name, [f"--address={self.address}"], n_cpus, environment, before)

    def kill_node(self, name: str) -> None:
        """Kill all processes of a node at once, as a power failure does."""
        node = self.nodes.pop(name)
        signal_all(self.processes_on(node), signal.SIGKILL)
        node.wait(DEADLINE_S)

    def end_node(self, name: str) -> None:
        """End a node gracefully: it can tell the head."""
        self.nodes[name].terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.nodes[name].wait(20)
        self.kill_node(name)

    def connect(self, name: str, is_joined: bool) -> None:
        """Cut a node from the head, or rejoin it: through its network if it has one, else by stopping its raylet."""
        if self.network:
            self.network.connect(name, is_joined)
            return
        pids = self.processes_on(self.nodes[name])
        raylet = [pid for pid in pids if Path(f"/proc/{pid}/exe").resolve().name == "raylet"]
        signal_all(raylet, signal.SIGCONT if is_joined else signal.SIGSTOP)

    def said(self, node: str) -> str:
        """Return what `ray start` printed."""
        return (self.folder / f"{node}.log").read_text()

    def begin(self, *command: str | Path, **environment: str) -> Started:
        """Start one of our commands, as a user of the cluster."""
        self.n_started += 1
        output = self.folder / f"{self.n_started}.out"
        own = {**self.environment, "PYTHONPATH": str(ROOT), **environment}
        return started([*self.prefix, sys.executable, *command], output, own)

    def workers(self, node: str = "") -> list[int]:
        """Return the workers that have a trial, on one node or on all."""
        return workers_among(self.processes_on(self.nodes[node]) if node else processes_of(self.folder))

    def processes_on(self, node: subprocess.Popen[bytes]) -> list[int]:
        """Return the processes of a node: workers are children of the raylet, which is a child of `ray start`."""
        return descendants(node.pid, processes_of(self.folder))

    def end_all(self) -> None:
        signal_all(processes_of(self.folder), signal.SIGKILL)
        for node in self.nodes.values():
            node.wait(DEADLINE_S)

    def _start_node(
        self, name: str, options: list[str], n_cpus: int | None, environment: Mapping[str, str], before: str = ""
    ) -> str:  # fmt: skip
        """Start a node; return its address once it runs."""
        address = self.network.join(name) if self.network else "127.0.0.1"
        options += [
            "--block", f"--node-ip-address={address}", f"--num-cpus={self.n_cpus if n_cpus is None else n_cpus}",
            "--num-gpus=0", "--min-worker-port=0", "--max-worker-port=0",
            f"--dashboard-agent-listen-port={free_port()}", "--object-store-memory=80000000", "--disable-usage-stats",
        ]  # fmt: skip
        command = [sys.executable, str(self.ray), "start", *options]
        if before:
            command = ["unshare", "-m", "bash", "-c", f'{before} && exec "$@"', "bash", *command]
        prefix = self.network.prefix(name) if self.network else ()
        common = {name: value for name, value in self.environment.items() if name != "PYTHONPATH"}
        for _ in range(_MOST_TRIES):  # on a busy machine Ray gives up; the next attempt finds its files in memory
            with (self.folder / f"{name}.log").open("wb") as log:
                node = self.nodes[name] = subprocess.Popen(
                    [*prefix, *command], cwd=self.folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                    env={**common, **environment}, start_new_session=True,
                )  # fmt: skip
            wait_for(lambda: _STARTED in self.said(name) or node.poll() is not None, f"{name} has started")  # noqa: B023
            if node.poll() is None:
                return address
        raise RuntimeError(f"{name} did not start: {self.said(name)}")


@contextmanager
def cluster(is_networked: bool = True, **options: Any) -> Iterator[Cluster]:
    """Make a folder for a cluster, and namespaces if asked for and allowed; remove both, even after SIGTERM."""
    with stoppable() as is_ending, ExitStack() as after:
        folder = Path(tempfile.mkdtemp(prefix="pcl-", dir="/tmp"))
        after.callback(shutil.rmtree, folder, ignore_errors=True)
        network: Network | None = None
        with contextlib.suppress(OSError):
            network = Network() if is_networked else None
        if network:
            after.callback(network.close)
        found = Cluster(folder, network=network, **options)
        after.callback(lambda: wait_for(lambda: not processes_of(folder), "no process left"))
        after.callback(found.end_all)
        after.callback(is_ending)
        yield found


@contextmanager
def stoppable() -> Iterator[Callable[[], None]]:
    """Let SIGTERM end the context as Ctrl-C does; yield a function that ignores both, for the clean-up."""
    signals = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt("stopped; its nodes, networks and files are gone")

    def ignore() -> None:
        for number in signals:
            signal.signal(number, signal.SIG_IGN)

    before = {number: signal.signal(number, stop) for number in signals}
    try:
        yield ignore
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
