"""SQLite databases that appear atomically, and checks of those that an earlier process left."""

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pcl.storage.files import set_aside

PATIENCE_S = 20.0  # how long another writer may hold the lock
_REVISION = "alembic_version"  # the table where Alembic, used by MLflow and Optuna, keeps the schema's version
_SIBLINGS = ("-journal", "-wal", "-shm")  # files that belong to a database of the same name


@contextmanager
def new_database(path: Path) -> Iterator[Path]:
    """Yield a path in a folder of its own to create a database at; `put` then gives it its name.

    Only one process at a time may do so: leftovers of a killed process are removed first.
    """
    clear_unfinished(path)
    folder = _workshop(path)
    folder.mkdir(parents=True)
    try:
        yield folder / path.name
    finally:
        clear_unfinished(path)


def clear_unfinished(path: Path) -> None:
    """Remove the leftovers of a process that was killed in `new_database`."""
    shutil.rmtree(_workshop(path), ignore_errors=True)


def _workshop(path: Path) -> Path:
    return path.with_name(f".{path.name}.new")


def put(new: Path, path: Path) -> None:
    """Atomically rename a database that is not open anywhere; if the name is taken, the existing file stays."""
    with new.open("rb") as file:
        os.fsync(file.fileno())
    if path.exists():
        return
    for end in _SIBLINGS:  # the journal of a deleted file would be applied to the new one
        if (stale := path.with_name(path.name + end)).exists():
            set_aside(stale, "incomplete")
    try:
        os.link(new, path)
    except FileExistsError:
        return
    except OSError:  # a file system without hard links
        new.rename(path)


def set_database_aside(path: Path, why: str) -> Path:
    """Rename a database and its siblings to a free name that says why; return the new path."""
    aside = set_aside(path, why)
    for end in _SIBLINGS:
        if (sibling := path.with_name(path.name + end)).exists():
            sibling.rename(aside.with_name(aside.name + end))
    return aside


def tables_of(path: Path) -> dict[str, bool]:
    """Return the names of a database's tables and whether each has rows; recovers what a killed writer left.

    Raises:
        sqlite3.Error: If it is locked, damaged or not a database.
    """
    with closing(sqlite3.connect(path, PATIENCE_S)) as connection:
        names = [name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")]
        return {name: bool(connection.execute(f'select 1 from "{name}" limit 1').fetchall()) for name in names}


def revision(path: Path) -> str:
    """Return the version of a database's schema, or "" if it has none yet.

    Raises:
        sqlite3.Error: If it is locked, damaged or not a database.
    """
    if not tables_of(path).get(_REVISION):
        return ""
    with closing(sqlite3.connect(path, PATIENCE_S)) as connection:
        return str(connection.execute(f"select version_num from {_REVISION}").fetchone()[0])


def is_damaged(path: Path) -> bool:
    """Return whether SQLite finds that a file is not a database, or a corrupt one.

    Raises:
        sqlite3.Error: If it cannot be read for another reason, such as a lock or a full disk.
    """
    try:
        with closing(sqlite3.connect(path, PATIENCE_S)) as connection:
            return bool(connection.execute("pragma quick_check").fetchone() != ("ok",))
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            return True
        raise
