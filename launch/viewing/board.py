"""The board: served with MLflow's pages until Ctrl-C, or written as files."""

import contextlib
import errno
import gc
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from dashboards.board.export import check_folder, export
from dashboards.board.server import BoardServer, is_loopback
from dashboards.board.site import Site
from dashboards.board.store.artifacts import Artifacts
from dashboards.board.store.mlflow_mirror import open_database
from launch.shared.command import say
from launch.shared.ui_services import MlflowPages, RayPages, found_board
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.tracking.database_file import Database, StoreError
from pcl.studies.tracking.store import Store, tracking_uri


@dataclass(frozen=True)
class BoardRequest:
    """A request to `launch/board.py`, which describes each option."""

    storage: Storage
    tracking_uri: str | None
    export: Path | None
    host: str
    port: int
    is_port_fixed: bool  # whether a taken port is an error, rather than replaced by another
    mlflow: str | None
    mlflow_port: int
    ray: str | None


def show(request: BoardRequest) -> None:
    """Serve the board, or write it."""
    _check(request)
    request.storage.require_tracking(request.tracking_uri)
    store = Store(tracking_uri(request.tracking_uri, request.storage.path))
    if store.database is None:
        store.check()
    elif told := _against(store.database.parent):
        raise ValueError(f"Studies must be in a folder, but {told}; `--storage` or `--tracking-uri` names it.")
    elif request.export and not store.database.exists():
        raise ValueError(
            f"There is no tracking database {store.database} to export; `--storage` or `--tracking-uri` names it."
        )
    try:
        database = open_database(store)
        if request.export:
            _export(request, request.export, store, database)
        else:
            _serve(request, store, database)
    except StoreError as error:
        raise ValueError(str(error)) from None


def _check(request: BoardRequest) -> None:
    """Raise a ValueError for an impossible request."""
    for flag, port in (("port", request.port), ("mlflow-port", request.mlflow_port)):
        if not 0 <= port < 2**16:
            raise ValueError(f"`--{flag}` must be from 0 to 65535, but got {port}.")
    for flag, address in (("mlflow", request.mlflow), ("ray", request.ray)):
        if address and urlsplit(address).scheme not in ("http", "https"):
            raise ValueError(f"`--{flag}` must be an http(s) address, but got {address!r}.")
    if request.export:
        with _writing(request.export):
            check_folder(request.export)


def _against(folder: Path) -> str:
    """Return why studies cannot be in a folder, or ""."""
    try:
        place = next(place for place in (folder, *folder.parents) if place.exists())
        return "" if place.is_dir() else f"{place} is none"
    except OSError as error:
        return f"{folder} cannot be looked at ({error.strerror})"


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turn the system's error about a folder into a ValueError with one sentence."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"`--export` must name a folder that can be written to, but {folder} is not: {error.strerror or error}."
        ) from None


def _export(request: BoardRequest, folder: Path, store: Store, database: Database) -> None:
    address = MlflowPages(store, request.mlflow_port, request.mlflow).address()
    with _writing(folder):
        files = export(Site(database, Artifacts(store), lambda: address, lambda: "", is_live=False), folder)
    size = sum(file.stat().st_size for file in files)
    say(f"written: {folder / 'index.html'} and {len(files) - 1} more files, {size / 2**20:.1f} MiB")


def _serve(request: BoardRequest, store: Store, database: Database) -> None:
    port = request.port
    if (there := found_board(request.host, port)) == store.shown_uri:
        say(f"The board of {store.shown_uri} is already running: http://{request.host}:{port}/")
        return
    database.begin()
    mlflow, ray = MlflowPages(store, request.mlflow_port, request.mlflow), RayPages(request.ray)
    site = Site(database, Artifacts(store), mlflow.address, ray.address)
    server = _listening(site, request, store.shown_uri)
    if server.server_address[1] != port and port:
        say(f"port {port} is taken{' by the board of another store' if there else ''}")
    gc.set_threshold(200_000)  # a page of thousands of trials has as many small objects, which take long to scan
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing that was started keeps running
    with mlflow, ray, server:
        say(f"board: {server.address}  ({store.shown_uri})")
        if not is_loopback(request.host):
            say("It asks for no password: everyone who reaches this address can read all studies.")
        follows = "" if mlflow.address() else "MLflow's pages follow in a few seconds. "
        say(f"{follows}Ctrl-C ends what was started here.")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped, and with it what it had started") from None


def _listening(site: Site, request: BoardRequest, store: str) -> BoardServer:
    """Return a server at the port, or at any free port if this one is taken and was not asked for."""
    host, port = request.host, request.port
    try:
        return BoardServer(site, host, port, store)
    except UnicodeError:
        told = "it is not a name"
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        if is_taken and not request.is_port_fixed:
            return BoardServer(site, host, 0, store)
        if is_taken or error.errno == errno.EACCES:
            raise ValueError(f"The board cannot listen at {host}:{port}: {error.strerror}.") from None
        told = error.strerror or str(error)
    raise ValueError(f"`--host` must be an IPv4 address or name of this machine, not {host!r}: {told}.")
