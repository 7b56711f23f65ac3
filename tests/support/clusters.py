"""Ray clusters as others would start them, with nodes on this machine, each test's its own, with a token."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launch.testbed.nodes import Cluster as Nodes
from launch.testbed.processes import ROOT, Started
from pcl.studies.cluster.session import DASHBOARD
from tests.support.fork_server import forked, server
from tests.support.services import Home, home

# No workers in advance, trials that do not wait until other tests have ended, and a dashboard where one is looked at.
RAY = {"RAY_prestart_worker_first_driver": "0", "RAY_worker_niceness": "0", DASHBOARD: "0"}


class Cluster(Nodes):
    """Nodes of Ray in a home."""

    def __init__(self, place: Home, **options: object) -> None:
        super().__init__(place.path, ray=ROOT / "tests/support/ray_node.py", **options)  # type: ignore[arg-type]
        server()  # which forks their workers
        self.place = place

    @property
    def environment(self) -> dict[str, str]:
        return {**super().environment, **RAY, "RAY_health_check_timeout_ms": "60000"}  # no node is to be lost

    def begin(self, *command: str | Path, **environment: str) -> Started:
        self.n_started += 1
        own = {**self.environment, "PYTHONPATH": str(ROOT), **environment}
        self.place.drivers.append(forked(command, self.folder / f"{self.n_started}.out", own))
        return self.place.drivers[-1]

    def run(self, *command: str | Path, code: int = 0) -> Started:
        return self.begin(*command).ended(code)

    def submit(self, *arguments: str | Path, code: int = 0) -> Started:
        return self.run("launch/submit.py", "--address", self.url, *arguments, code=code)


@contextmanager
def cluster(n_nodes: int = 1, n_cpus: int = 1, *, has_dashboard: bool = False) -> Iterator[Cluster]:
    """A new one, with as many cores on each node; nothing of it is left."""
    with home() as place:
        found = Cluster(place, n_cpus=n_cpus)
        try:
            found.start(has_dashboard=has_dashboard)
            for index in range(1, n_nodes):
                found.add_node(f"node{index}")
            yield found
        finally:
            found.end_all()
