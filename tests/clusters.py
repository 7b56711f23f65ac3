"""Ray clusters as others would start them, with nodes on this machine, each test's its own, with a token."""

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.services import ROOT, Grid, Home, free_port, home, wait_for

_RAY = str(Path(sys.executable).parent / "ray")


@dataclass
class Cluster:
    """Nodes of Ray in a home; they know nothing of this checkout, so that what they need has to travel."""

    place: Home
    port: int = field(default_factory=free_port)
    dashboard: int = field(default_factory=free_port)
    token: str = field(default_factory=lambda: uuid.uuid4().hex)
    n_cpus: int = 1
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.dashboard}"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_"))}
        return {
            **kept, "RAY_TMPDIR": str(self.place.path), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token,
            "RAY_USAGE_STATS_ENABLED": "0",
        }  # fmt: skip

    def start(self) -> None:
        options = [
            f"--port={self.port}", f"--dashboard-port={self.dashboard}", "--dashboard-host=127.0.0.1",
            "--include-dashboard=true", f"--ray-client-server-port={free_port()}",
        ]  # fmt: skip
        self._start_node("head", ["--head", *options])
        wait_for(lambda: "Ray runtime started" in self.said("head"), "the head has started", 60)

    def add_node(self, name: str, before: str = "") -> None:
        """A second node; `before` is done first, where only this node sees it."""
        self._start_node(name, [f"--address={self.address}"], before)
        wait_for(lambda: "Ray runtime started" in self.said(name), f"{name} has started", 60)

    def said(self, node: str) -> str:
        return (self.place.path / f"{node}.log").read_text()

    def run(self, *command: str | Path, code: int = 0) -> Grid:
        return self.begin(*command).ended(code)

    def begin(self, *command: str | Path) -> Grid:
        """Start one of our commands, as a user of the cluster."""
        self.place.n_started += 1
        output = self.place.path / f"{self.place.n_started}.out"
        environment = {**self.environment, "PYTHONPATH": str(ROOT)}
        with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
            process = subprocess.Popen(
                [sys.executable, *map(str, command)], cwd=ROOT, stdout=out, stderr=err, stdin=subprocess.DEVNULL,
                env=environment, start_new_session=True,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  as in Home.start
            )  # fmt: skip
        return Grid(process, output)

    def submit(self, *arguments: str | Path, code: int = 0) -> Grid:
        return self.run("launch/submit.py", "--address", self.url, *arguments, code=code)

    def _start_node(self, name: str, options: list[str], before: str = "") -> None:
        options += [
            "--block", "--node-ip-address=127.0.0.1", f"--num-cpus={self.n_cpus}", "--num-gpus=0",
            "--min-worker-port=0", "--max-worker-port=0", f"--dashboard-agent-listen-port={free_port()}",
            "--object-store-memory=80000000", "--disable-usage-stats",
        ]  # fmt: skip
        command = [sys.executable, _RAY, "start", *options]
        if before:
            command = ["unshare", "-m", "bash", "-c", f'{before} && exec "$@"', "bash", *command]
        environment = {name: value for name, value in self.environment.items() if name != "PYTHONPATH"}
        with (self.place.path / f"{name}.log").open("wb") as log:
            node = subprocess.Popen(
                command, cwd=self.place.path, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment,
                start_new_session=True,
            )  # fmt: skip
        self.nodes.append(node)


@contextmanager
def cluster(n_nodes: int = 1, n_cpus: int = 1) -> Iterator[Cluster]:
    """A new one, with as many cores on each node; nothing of it is left."""
    with home() as place:
        found = Cluster(place, n_cpus=n_cpus)
        try:
            found.start()
            for index in range(1, n_nodes):
                found.add_node(f"node{index}")
            yield found
        finally:
            place.end_all()
            for node in found.nodes:
                node.wait(20)
