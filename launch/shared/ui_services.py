"""Services that the board links to: MLflow's server, found or started, and the dashboard of a running Ray."""

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import IO, Self
from urllib.parse import quote

from pcl.studies.tracking.store import Store, StoreError

_PROBE_S = 2.0  # timeout of a request
_RAY_PORTS = (8265, 8266, 8267)  # Ray's default, and the next ones for further clusters
_LOOK_S = 10.0  # seconds between two searches for a dashboard
_END_S = 5.0  # seconds for a terminated server to end


class MlflowPages:
    """MLflow's own pages for a store, at the requested address or that of the store's server.

    A database has no server of its own: unless one is found at the port, one is started in the background, there if the
    port is free.
    """

    def __init__(self, store: Store, port: int, asked: str | None = None) -> None:
        self._store, self._port = store, port
        self._process: subprocess.Popen[bytes] | None = None
        self._address = asked or ("" if store.database else store.shown_uri)
        self._is_ending = threading.Event()
        self._lock = threading.Lock()

    def address(self) -> str:
        """Return the address of the pages; empty until a server answers."""
        return self._address

    def __enter__(self) -> Self:
        if not self._address:
            threading.Thread(target=self._bring, name="mlflow-pages", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()
        with self._lock:
            if self._process is None:
                return
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._process.pid, number)
                if _has_ended(self._process):
                    break
            self._process = None

    def _bring(self) -> None:
        there = f"http://127.0.0.1:{self._port}"
        if self._is_of_store(there):
            self._address = there
            return
        with contextlib.suppress(StoreError):
            self._store.call(lambda client: client.search_experiments(max_results=1))  # creates the database, once
        port = _free_port(self._port)
        with self._lock:
            if self._is_ending.is_set():
                return
            self._process = self._start(port)
        address = f"http://127.0.0.1:{port}"
        while not self._is_ending.wait(0.5) and self._process and self._process.poll() is None:
            if _get(f"{address}/health") is not None:
                self._address = address
                break

    def _start(self, port: int) -> subprocess.Popen[bytes]:
        assert self._store.database is not None
        folder = self._store.database.parent
        command = [
            sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
            "--backend-store-uri", self._store.uri, "--artifacts-destination", str(self._store.artifacts),
        ]  # fmt: skip
        slim = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with contextlib.ExitStack() as opened:
            log: IO[bytes] | int = subprocess.DEVNULL
            with contextlib.suppress(OSError):  # a read-only folder has no log
                log = opened.enter_context((folder / "mlflow-server.log").open("ab"))
            return subprocess.Popen(
                command, env={**os.environ, **slim}, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def _is_of_store(self, address: str) -> bool:
        """Return whether the server at an address has the store's latest run."""
        if not self._store.database or not self._store.database.exists() or _get(f"{address}/health") is None:
            return False
        try:
            experiments = self._store.call(lambda client: client.search_experiments(max_results=1000))
            runs = self._store.call(
                lambda client: client.search_runs([e.experiment_id for e in experiments], max_results=1)
            )
        except StoreError:
            return False
        asked = f"{address}/api/2.0/mlflow/runs/get?run_id={quote(runs[0].info.run_id)}" if runs else ""
        return bool(asked) and _get(asked) is not None


class RayPages:
    """Ray's dashboard, which comes and goes with its cluster; searched for on this machine unless it has an address."""

    def __init__(self, asked: str | None) -> None:
        self._candidates = [asked] if asked else [f"http://127.0.0.1:{port}" for port in _RAY_PORTS]
        if not asked and (known := os.environ.get("RAY_API_SERVER_ADDRESS", "")).startswith("http"):
            self._candidates.insert(0, known)
        self._address = ""
        self._is_ending = threading.Event()

    def address(self) -> str:
        """Return the address of the dashboard; empty while there is none."""
        return self._address

    def look(self) -> None:
        """Look for the dashboard once."""
        pages = ((candidate, _get(candidate)) for candidate in self._candidates)
        self._address = next((c.rstrip("/") for c, content in pages if content and b"Ray Dashboard" in content), "")

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="ray-pages", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_ending.set()

    def _watch(self) -> None:
        self.look()
        while not self._is_ending.wait(_LOOK_S):
            self.look()


def _has_ended(server: subprocess.Popen[bytes]) -> bool:
    """Wait for a server and its child processes to end; return whether they did in time."""
    deadline = time.monotonic() + _END_S
    while time.monotonic() < deadline:
        server.poll()
        try:
            os.killpg(server.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def found_board(host: str, port: int) -> str:
    """Return the store of a board that already runs at an address; empty if there is none."""
    content = _get(f"http://{host}:{port}/board.json") if port else None
    try:
        found = json.loads(content or b"{}")
    except ValueError:
        return ""
    return str(found["store"]) if isinstance(found, dict) and found.get("board") == "pcl" else ""


def _get(address: str) -> bytes | None:
    """Return the content of a page, or None."""
    try:
        with urllib.request.urlopen(address, timeout=_PROBE_S) as answer:
            return bytes(answer.read(2**20))
    except (OSError, ValueError, http.client.HTTPException):  # the last if something other than HTTP answers
        return None


def _free_port(wanted: int) -> int:
    """Return the port if it is free, else any free port."""
    for port in (wanted, 0):
        with socket.socket() as listener, contextlib.suppress(OSError, OverflowError):
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", port))
            return int(listener.getsockname()[1])
    raise OSError("no port of this machine is free")
