"""Look at studies: `python launch/ui.py` serves the board, with MLflow beside it, until Ctrl-C.

The board shows what MLflow has recorded: studies, their trials and winners, paired differences, the paper's numbers
beside ours, any two runs compared. It links to MLflow's own pages, for which a server is started unless one is there,
and to Ray's dashboard where a cluster runs. `--export DIR` writes the same pages as files, which need no server.
"""

import argparse
import contextlib
import errno
import gc
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from launch.shared.command import Parser, require_tracking, run, say
from pcl.studies.ledger.study_storage import Storage

if TYPE_CHECKING:
    from dashboards.board.server import BoardServer
    from dashboards.board.site import Site
    from pcl.studies.tracking.database_file import Database
    from pcl.studies.tracking.store import Store

_PORT = 8300


def main() -> None:
    """Parse the command line, then serve or write."""
    arguments = _parser().parse_args()
    from dashboards.board.store.opening import open_database  # noqa: PLC0415  -h answers at once
    from pcl.studies.tracking.database_file import StoreError  # noqa: PLC0415  -h answers at once
    from pcl.studies.tracking.store import Store, tracking_uri  # noqa: PLC0415

    _check(arguments)
    require_tracking(arguments)
    store = Store(tracking_uri(arguments.tracking_uri, arguments.storage.path))
    if store.database is None:
        store.check()
    elif told := _against(store.database.parent):
        raise ValueError(f"Studies must be in a folder, but {told}; `--storage` or `--tracking-uri` names it.")
    elif arguments.export and not store.database.exists():
        raise ValueError(
            f"There is no tracking database {store.database} to export; `--storage` or `--tracking-uri` names it."
        )
    try:
        database = open_database(store)
        if arguments.export:
            _export(arguments.export, store, database)
        else:
            _serve(arguments, store, database)
    except StoreError as error:
        raise ValueError(str(error)) from None


def _check(arguments: argparse.Namespace) -> None:
    """Raise a ValueError for what cannot be meant."""
    from dashboards.board.export import check_folder  # noqa: PLC0415
    from launch.shared.ui_services import check_address  # noqa: PLC0415

    for name in ("port", "mlflow_port"):
        if not 0 <= (getattr(arguments, name) or 0) < 2**16:
            flag = name.replace("_", "-")
            raise ValueError(f"`--{flag}` must be from 0 to 65535, but got {getattr(arguments, name)}.")
    if arguments.ray:
        check_address(arguments.ray)
    if arguments.export:
        with _writing(arguments.export):
            check_folder(arguments.export)


def _against(folder: Path) -> str:
    """Why a folder cannot be one: what there is of it, or of its parents, is none, or cannot be looked at."""
    try:
        place = next(place for place in (folder, *folder.parents) if place.exists())
        return "" if place.is_dir() else f"{place} is none"
    except OSError as error:
        return f"{folder} cannot be looked at ({error.strerror})"


@contextlib.contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Tell what the system says against a folder in a sentence."""
    try:
        yield
    except OSError as error:
        raise ValueError(
            f"`--export` must name a folder that can be written to, but {folder} is not: {error.strerror or error}."
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="ui.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--storage", type=Storage.of, default=Storage.of("runs"), metavar="FOLDER|URI",
                        help="of the studies (default: runs); of a store, the tracking URI alone is read")  # fmt: skip
    parser.add_argument("--tracking-uri", help="MLflow (default: MLFLOW_TRACKING_URI, or STORAGE/mlflow.db)")
    parser.add_argument("--export", type=Path, metavar="DIR", help="write the board as files and stop")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: this machine alone)")
    parser.add_argument("--port", type=int, help=f"of the board (default: {_PORT}, or any where that is taken)")
    parser.add_argument("--mlflow-port", type=int, default=5000, help="of MLflow's server (default: 5000, or any)")
    parser.add_argument("--ray", metavar="URL", help="Ray's dashboard (default: found on this machine)")
    return parser


def _export(folder: Path, store: "Store", database: "Database") -> None:
    from dashboards.board.export import export  # noqa: PLC0415
    from dashboards.board.site import Site  # noqa: PLC0415
    from dashboards.board.store.artifacts import Artifacts  # noqa: PLC0415

    address = "" if store.database else store.shown_uri
    with _writing(folder):
        files = export(Site(database, Artifacts(store), lambda: address, lambda: "", is_live=False), folder)
    size = sum(file.stat().st_size for file in files)
    say(f"written: {folder / 'index.html'} and {len(files) - 1} more files, {size / 2**20:.1f} MiB")


def _serve(arguments: argparse.Namespace, store: "Store", database: "Database") -> None:
    from dashboards.board.server import is_loopback  # noqa: PLC0415
    from dashboards.board.site import Site  # noqa: PLC0415
    from dashboards.board.store.artifacts import Artifacts  # noqa: PLC0415
    from launch.shared.ui_services import MlflowPages, RayPages, found_board  # noqa: PLC0415

    port = _PORT if arguments.port is None else arguments.port
    if (there := found_board(arguments.host, port)) == store.shown_uri:
        say(f"The board of {store.shown_uri} is there already: http://{arguments.host}:{port}/")
        return
    database.begin()
    mlflow, ray = MlflowPages(store, arguments.mlflow_port), RayPages(arguments.ray)
    site = Site(database, Artifacts(store), mlflow.address, ray.address)
    server = _listening(site, arguments, port, store.shown_uri)
    if server.server_address[1] != port and port:
        say(f"port {port} is taken{' by the board of another store' if there else ''}")
    gc.set_threshold(200_000)  # a page of thousands of trials is as many small objects; to look through them takes long
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing that was started stays
    with mlflow, ray, server:
        say(f"board: {server.address}  ({store.shown_uri})")
        if not is_loopback(arguments.host):
            say("It asks for no password: whoever reaches this address can read all studies.")
        follows = "MLflow's pages follow in some seconds. " if store.database else ""
        say(f"{follows}Ctrl-C ends what was started here.")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped, and with it what it had started") from None


def _listening(site: "Site", arguments: argparse.Namespace, port: int, store: str) -> "BoardServer":
    """At the port, or at any that is free where none was asked for and it is taken."""
    from dashboards.board.server import BoardServer  # noqa: PLC0415

    host = arguments.host
    try:
        return BoardServer(site, host, port, store)
    except UnicodeError:
        told = "it is no name"
    except OSError as error:
        is_taken = error.errno == errno.EADDRINUSE
        if is_taken and arguments.port is None:
            return BoardServer(site, host, 0, store)
        if is_taken or error.errno == errno.EACCES:
            raise ValueError(f"The board cannot listen at {host}:{port}: {error.strerror}.") from None
        told = error.strerror or str(error)
    raise ValueError(f"`--host` must be an IPv4 address or name of this machine, not {host!r}: {told}.")


if __name__ == "__main__":
    run(main)
