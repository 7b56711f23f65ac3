"""MLflow servers that are forked from this process: each costs what it does, not what it imports.

They are what `mlflow server` runs with one worker. `python tests/support/tracking_server.py PORT GO` is one of them.
"""

import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from launch.testbed.forks import forked
from launch.testbed.processes import Started, answers, wait_for
from pcl.studies.tracking.store import Store

_APP = "mlflow.server.fastapi_app"


class PreparedServer:
    """A server on loopback, forked before a test starts threads of its own, that serves when told to, until killed."""

    def __init__(self, process: Started, port: int, go: Path) -> None:
        self._process, self._port, self._go = process, port, go

    def start(self) -> None:
        self._go.touch()
        process, url = self._process.process, f"http://127.0.0.1:{self._port}/health"
        wait_for(lambda: process.poll() is not None or answers(url), "the MLflow server answers")
        assert process.poll() is None, self._process.errors

    @contextmanager
    def running(self) -> Iterator[None]:
        try:
            self.start()
            yield
        finally:
            self.kill()

    def kill(self) -> None:
        self._process.kill()


@contextmanager
def prepared(folder: Path, port: int, n_servers: int) -> Iterator[list[PreparedServer]]:
    """Fork servers of one database, which run one after the other on the same port."""
    database = f"sqlite:///{folder / 'server.db'}"
    Store(database).call(lambda _: None)  # it is made here
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("uvicorn", _APP):
            import_module(name)
    environment = {
        **os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true",
        "_MLFLOW_SERVER_FILE_STORE": database, "_MLFLOW_SERVER_SERVE_ARTIFACTS": "true",
        "_MLFLOW_SERVER_ARTIFACT_DESTINATION": str(folder / "served"),
        "_MLFLOW_SERVER_ARTIFACT_ROOT": "mlflow-artifacts:/",
    }  # fmt: skip
    found: list[PreparedServer] = []
    try:
        for number in range(n_servers):
            go = folder / f"go-{number}"
            words = [Path(__file__), str(port), go]
            found.append(PreparedServer(forked(words, folder / f"server-{number}.out", environment), port, go))
        yield found
    finally:
        for server in found:
            server.kill()


if __name__ == "__main__":
    port, go = int(sys.argv[1]), Path(sys.argv[2])
    parent = os.getppid()
    wait_for(lambda: go.exists() or os.getppid() != parent, "told to serve", math.inf)
    if not go.exists():
        sys.exit()
    warnings.simplefilter("ignore")
    import_module("uvicorn").run(f"{_APP}:app", host="127.0.0.1", port=port, log_level="warning")
