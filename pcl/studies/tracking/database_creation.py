"""Creation of MLflow's database, and its artifacts' paths.

MLflow creates a database in some 1,700 SQL statements and cannot continue after it was killed.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pcl.storage import sqlite_files
from pcl.storage.files import warn
from pcl.storage.locks import process_lock
from pcl.studies.tracking.tags import EXPERIMENTS

_OWN = {"experiments", "_alembic_tmp_experiments"}  # one of them is there from MLflow's first statement on
_FILLED = {"alembic_version", "workspaces"}  # tables that MLflow writes to while it creates the others


@contextmanager
def creation_lock(database: Path | None) -> Iterator[None]:
    """Hold the lock for creating a database: MLflow's migrations fail if several processes run them."""
    if database is None:
        yield
        return
    with process_lock(database.with_name(f"{database.name}.lock")):
        yield


def ensure_database(database: Path, artifacts: Path) -> None:
    """Create MLflow's database unless it exists, under the creation lock; it appears whole or not at all.

    A half-made, empty database is moved aside. One that changes meanwhile is being made by another program, such as
    `mlflow server`, which is waited for. `artifacts` is for experiments that have no folder of their own.

    Raises:
        ValueError: If the file is another program's database.
        sqlite3.Error: If it is locked, damaged or not a database.
    """
    path = Path(os.path.realpath(database))
    sqlite_files.clear_unfinished(path)
    while not path.exists() or _has_nothing(path):
        before = _state(path)
        with sqlite_files.new_database(path) as new:
            _make(new, artifacts)
            if _state(path) != before:
                continue
            if path.exists() and sqlite_files.revision(path) == sqlite_files.revision(new):
                return  # whole, and not used yet
            if path.exists():
                aside = sqlite_files.set_database_aside(path, "incomplete")
                warn(
                    f"The tracking database {path} was half made and empty: it is now {aside.name}; a new one is used."
                )
            sqlite_files.put(new, path)


# Columns with paths of artifacts; registered models belong to no experiment.
_PATHS = (
    ("runs", "artifact_uri"), ("logged_models", "artifact_location"), ("model_versions", "source"),
    ("model_versions", "storage_location"),
)  # fmt: skip


def bring_artifacts(database: Path, artifacts: Path) -> None:
    """Point our runs to where their artifacts are now: MLflow keeps absolute paths, which a move or a copy outdates.

    If the folder does not exist, but the one that MLflow knows does, nothing has moved.
    """
    here = artifacts.as_uri()
    with closing(sqlite3.connect(database, sqlite_files.PATIENCE_S)) as connection, connection:
        known = connection.execute(
            "select experiment_id, artifact_location from experiments where name like ? and "
            "artifact_location like 'file:%' and artifact_location <> ?",
            (f"{EXPERIMENTS}%", here),
        ).fetchall()
        tables = sqlite_files.tables_of(database) if known else {}
        for experiment, before in known:
            if Path(unquote(urlsplit(before).path)).exists() and not artifacts.exists():
                continue
            connection.execute(
                "update experiments set artifact_location = ? where experiment_id = ?", (here, experiment)
            )
            for table, column in (path for path in _PATHS if path[0] in tables):
                of_ours = "" if table == "model_versions" else f"experiment_id = {int(experiment)} and "
                connection.execute(
                    f"update {table} set {column} = ?1 || substr({column}, length(?2) + 1) "
                    f"where {of_ours}substr({column}, 1, length(?2) + 1) = ?2 || '/'",
                    (here, before),
                )


def _make(path: Path, artifacts: Path) -> None:
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore  # noqa: PLC0415  MLflow takes seconds, and the board needs none

    store = SqlAlchemyStore(f"sqlite:///{path}", artifacts.as_uri())  # type: ignore[no-untyped-call]
    store.engine.dispose()


def _has_nothing(path: Path) -> bool:
    """Return whether a database has no rows but those that MLflow writes while it makes the tables."""
    tables = sqlite_files.tables_of(path)
    if set(tables) - _FILLED and not set(tables) & _OWN:
        raise ValueError(
            f"{path} is a database of another program, with tables such as {min(set(tables) - _FILLED)}; "
            "give MLflow a file of its own."
        )
    return not any(has_rows for name, has_rows in tables.items() if name not in _FILLED)


def _state(path: Path) -> tuple[int, int, int] | None:
    """Return a value that changes when the file does."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_ino, found.st_size, found.st_mtime_ns
    return None
