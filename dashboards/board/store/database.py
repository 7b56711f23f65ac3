"""Rows of MLflow's tables, read only.

Of a database file they are read directly: MLflow's own client takes twelve seconds for 5,000 runs, which SQLite has in
one. Of a server, or a file whose tables are not those that are known here, the client fills the same tables in memory.
"""

import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pcl.studies.tracking.database_file import TABLES, is_known, read_only
from pcl.studies.tracking.store import StoreError

__all__ = ["TABLES", "Database", "FileDatabase", "Row", "StoreError"]

Row = tuple[Any, ...]


class Database(ABC):
    """MLflow's tables. May be used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def begin(self) -> None:
        """Get ready to be read.

        Raises:
            StoreError: If the store cannot be read.
        """
        self.version()

    @property
    def reading(self) -> str:
        """How much is known, while that is not all."""
        return ""

    @abstractmethod
    def version(self) -> str:
        """Changes when the content does.

        Raises:
            StoreError: If the store cannot be read.
        """

    @abstractmethod
    def rows(self, sql: str, *values: object) -> list[Row]:
        """What a query returns.

        Raises:
            StoreError: If the store cannot be read.
        """

    def histories(self, runs: Sequence[str], metric: str) -> list[Row]:
        """Run, step, value and whether that is NaN, of every point of a metric, by step."""
        places = ",".join("?" * len(runs))
        return self.rows(
            f"select run_uuid, step, value, is_nan from metrics where run_uuid in ({places}) and key = ? "
            "order by step, timestamp",
            *runs, metric,
        )  # fmt: skip


class FileDatabase(Database):
    """A database file, which need not exist yet."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int] | None = None  # device and inode
        self._n_opened = 0

    def is_known(self) -> bool:
        """Whether the tables have the columns that are read here."""
        with self._lock:
            try:
                connection = self._open()
                return connection is None or is_known(connection)
            except (sqlite3.Error, OSError) as error:
                raise self._unreadable(error) from None

    def version(self) -> str:
        """By SQLite's count of what others have written."""
        with self._lock:
            ((version,),) = self.rows("pragma data_version") or [(0,)]
            return f"{self._n_opened}.{version}"

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Nothing where there is no file yet."""
        with self._lock:
            try:
                return self._rows(sql, values)
            except (sqlite3.Error, OSError) as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_READONLY_ROLLBACK:
                    raise self._unreadable(error) from None
            self._opened = None  # a writer was killed: a connection that is opened anew takes back what it had begun
            try:
                return self._rows(sql, values)
            except (sqlite3.Error, OSError) as error:
                raise self._unreadable(error) from None

    def _rows(self, sql: str, values: tuple[object, ...]) -> list[Row]:
        connection = self._open()
        return connection.execute(sql, values).fetchall() if connection else []

    def _unreadable(self, error: Exception) -> StoreError:
        told = error.strerror if isinstance(error, OSError) else error
        return StoreError(f"The tracking database {self._path} cannot be read: {told}.")

    def _open(self) -> sqlite3.Connection | None:
        """The connection; another one where the file has been replaced, none where there is no file."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            identity = None
        else:
            identity = (found.st_dev, found.st_ino) if found.st_size else None
        if identity != self._opened:
            if self._connection:
                self._connection.close()
            self._connection = None
            if identity is not None:
                self._connection = read_only(self._path)
            self._opened = identity
            self._n_opened += 1
        return self._connection
