"""The one SQL reader of MLflow's tables, for studies and for the board.

MLflow's client makes so many objects that 10,000 runs take a minute, which SQLite reads in a second or two. `find_runs`
and `find_points` return what the client would; tests compare them. For a server, or a file whose tables are not known
here, the client is used instead (`Store.find_by_client`, the board's mirror).
"""

import math
import os
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl.storage.sqlite_files import PATIENCE_S, tables_of
from pcl.studies.tracking.tags import RunState

if TYPE_CHECKING:
    from mlflow.entities import Run

TABLES = {
    "experiments": ("experiment_id", "name", "lifecycle_stage"),
    "runs": (
        "run_uuid", "name", "status", "start_time", "end_time", "lifecycle_stage", "experiment_id", "user_id",
        "artifact_uri",
    ),
    "tags": ("key", "value", "run_uuid"),
    "params": ("key", "value", "run_uuid"),
    "latest_metrics": ("key", "value", "timestamp", "step", "is_nan", "run_uuid"),
    "metrics": ("key", "value", "timestamp", "step", "is_nan", "run_uuid"),
}  # fmt: skip

LARGEST = 1.7976931348623157e308  # what MLflow's databases store for an infinity

Row = tuple[Any, ...]


class StoreError(RuntimeError):
    """MLflow did not do what it was asked; the message has no secrets."""


def restored(value: float) -> float:
    """Return a value as it was written, including infinities."""
    return math.copysign(math.inf, value) if abs(value) >= LARGEST else value


def read_only(path: Path) -> sqlite3.Connection:
    """Open a connection that writes nothing and that any thread may use, one at a time."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, PATIENCE_S, uri=True, check_same_thread=False)
    try:
        connection.execute("select 1 from sqlite_master limit 1").close()
    except sqlite3.Error as error:  # the reader raises any other error
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
            tables_of(path)  # rolls back what a killed writer had begun, which this connection cannot
    return connection


def is_known(connection: sqlite3.Connection) -> bool:
    """Return whether the tables have the columns that are read here: another version of MLflow may have others."""
    found = {table: {row[1] for row in connection.execute(f"pragma table_info({table})")} for table in TABLES}
    return all(set(columns) <= found[table] for table, columns in TABLES.items())


def find_runs(
    path: Path, experiments: Sequence[str], tags: Mapping[str, str], status: RunState | None = None, most: int = 0
) -> "list[Run] | None":
    """Return the runs that are not deleted and have these tags (and status), the oldest first: all, or `most` of them.

    None is returned if the tables are not known here.
    """
    with closing(read_only(path)) as connection:
        connection.execute("begin")  # everything is read as of one moment
        if not is_known(connection):
            return None
        condition, values = _condition(experiments, tags, status)
        order = f"order by start_time, run_uuid limit {most or -1}"
        columns = "run_uuid, experiment_id, user_id, status, start_time, end_time, lifecycle_stage, artifact_uri, name"
        heads = connection.execute(f"select {columns} from runs where {condition} {order}", values).fetchall()
        chosen = f"run_uuid in (select run_uuid from runs where {condition} {order})"
        content = {
            table: _by_run(connection, f"select run_uuid, {names} from {table} where {chosen}", values)
            for table, names in (
                ("tags", "key, value"), ("params", "key, value"),
                ("latest_metrics", "key, value, timestamp, step, is_nan"),
            )
        }  # fmt: skip
    return [_run(head, **{table: rows[head[0]] for table, rows in content.items()}) for head in heads]


def find_points(path: Path, run_id: str, key: str = "") -> list[tuple[str, int, int, float]] | None:
    """Return key, time in milliseconds, step and value of every point of a run's metric, or of all its metrics.

    None is returned if the tables are not known here.
    """
    with closing(read_only(path)) as connection:
        if not is_known(connection):
            return None
        asked, values = ("and key = ?", (run_id, key)) if key else ("", (run_id,))
        rows = connection.execute(
            f"select key, timestamp, step, value, is_nan from metrics where run_uuid = ? {asked} "
            "order by key, timestamp, step, value",
            values,
        )
        return [(name, time_ms, step, math.nan if is_nan else value) for name, time_ms, step, value, is_nan in rows]


def _condition(
    experiments: Sequence[str], tags: Mapping[str, str], status: RunState | None
) -> tuple[str, list[object]]:
    conditions = ["lifecycle_stage = 'active'", f"experiment_id in ({','.join('?' * len(experiments))})"]
    values: list[object] = [int(experiment) for experiment in experiments]
    for key, value in tags.items():
        conditions.append("run_uuid in (select run_uuid from tags where key = ? and value = ?)")
        values += [key, value]
    if status:
        conditions.append("status = ?")
        values.append(status)
    return " and ".join(conditions), values


def _by_run(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> dict[str, list[Row]]:
    rows: dict[str, list[Row]] = defaultdict(list)
    for run_id, *row in connection.execute(query, values):
        rows[run_id].append(tuple(row))
    return rows


def _run(head: Row, tags: list[Row], params: list[Row], latest_metrics: list[Row]) -> "Run":
    from mlflow.entities import Metric, Param, Run, RunData, RunInfo, RunTag  # noqa: PLC0415  MLflow takes seconds, and the board needs none

    run_id, experiment, user, status, start, end, lifecycle_stage, artifacts, name = head
    info = RunInfo(run_id, str(experiment), user, status, start, end, lifecycle_stage, artifacts, name)
    metrics = [Metric(key, math.nan if is_nan else value, ms, step) for key, value, ms, step, is_nan in latest_metrics]
    data = RunData(metrics, [Param(*row) for row in params], [RunTag(*row) for row in tags])
    return Run(info, data)


class Database(ABC):
    """MLflow's tables, readable by any number of threads; a `StoreError` says that they cannot be read."""

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def begin(self) -> None:
        """Prepare for reading."""
        self.version()

    @property
    def reading(self) -> str:
        """Return how much has been read so far, until all has."""
        return ""

    @abstractmethod
    def version(self) -> str:
        """Return a mark that changes when the content does."""

    @abstractmethod
    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of a query."""

    def histories(self, runs: Sequence[str], metric: str) -> list[Row]:
        """Return run, step, value and whether it is NaN for every point of a metric, by step."""
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
        """Return whether the tables have the columns that are read here; true where there is no file yet."""
        with self._lock:
            try:
                connection = self._open()
                return connection is None or is_known(connection)
            except (sqlite3.Error, OSError) as error:
                raise self._unreadable(error) from None

    def version(self) -> str:
        """Return SQLite's count of what others have written."""
        with self._lock:
            ((version,),) = self.rows("pragma data_version") or [(0,)]
            return f"{self._n_opened}.{version}"

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of a query; none where there is no file yet."""
        with self._lock:
            try:
                return self._rows(sql, values)
            except (sqlite3.Error, OSError) as error:
                if getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_READONLY_ROLLBACK:
                    raise self._unreadable(error) from None
            self._opened = None  # a writer was killed: a new connection rolls back what it had begun
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
        """Return the connection; a new one if the file was replaced, none if there is no file."""
        identity = None
        with suppress(FileNotFoundError):
            found = os.stat(self._path)
            identity = (found.st_dev, found.st_ino) if found.st_size else None
        if identity != self._opened:
            if self._connection:
                self._connection.close()
            self._connection = read_only(self._path) if identity else None
            self._opened = identity
            self._n_opened += 1
        return self._connection
