"""MLflow's database file, read without MLflow, whose client makes so many objects that 10,000 runs take a minute.

What is read is what the client would return; tests compare the two. All writing is the client's, but for where the
artifacts of a database are that has been moved or copied.
"""

import math
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

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

_Rows = dict[str, list[tuple[Any, ...]]]


def bring_artifacts(database: Path, artifacts: Path) -> None:
    """Have the artifacts of our runs where they are now: MLflow keeps whole paths, which a move or a copy outdates.

    Args:
        database: Its file.
        artifacts: The folder. Where it does not exist, but the one that MLflow knows does, nothing has moved.
    """
    here = artifacts.as_uri()
    with closing(sqlite3.connect(database, PATIENCE_S)) as connection, connection:
        known = connection.execute(
            "select experiment_id, artifact_location from experiments where name like 'pcl/%' and "
            "artifact_location like 'file:%' and artifact_location <> ?",
            (here,),
        ).fetchall()
        for experiment, before in known:
            if Path(unquote(urlsplit(before).path)).exists() and not artifacts.exists():
                continue
            connection.execute(
                "update experiments set artifact_location = ? where experiment_id = ?", (here, experiment)
            )
            connection.execute(
                "update runs set artifact_uri = ?1 || substr(artifact_uri, length(?2) + 1) "
                "where experiment_id = ?3 and substr(artifact_uri, 1, length(?2) + 1) = ?2 || '/'",
                (here, before, experiment),
            )


def read_only(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing and that any thread may use, one at a time."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = sqlite3.connect(address, PATIENCE_S, uri=True, check_same_thread=False)
    try:
        connection.execute("select 1 from sqlite_master limit 1").close()
    except sqlite3.Error as error:  # any other one is told to whoever reads
        if error.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK:
            tables_of(path)  # takes back what a killed writer had begun, which this connection cannot
    return connection


def is_known(connection: sqlite3.Connection) -> bool:
    """Whether the tables have the columns that are read here: another version of MLflow may have others."""
    found = {table: {row[1] for row in connection.execute(f"pragma table_info({table})")} for table in TABLES}
    return all(set(columns) <= found[table] for table, columns in TABLES.items())


def find_runs(
    path: Path, experiments: Sequence[str], tags: Mapping[str, str], status: RunState | None = None, most: int = 0
) -> "list[Run] | None":
    """Runs that are not deleted and have these tags (and status), the oldest first.

    Args:
        path: The database.
        experiments: Identifiers.
        tags: By name.
        status: None for any.
        most: How many at most; 0 for all.

    Returns:
        None where the tables are not those that are known here.
    """
    with closing(read_only(path)) as connection:
        connection.execute("begin")  # all that is read is of one moment
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


def _by_run(connection: sqlite3.Connection, query: str, values: Sequence[object]) -> _Rows:
    rows: _Rows = defaultdict(list)
    for run_id, *row in connection.execute(query, values):
        rows[run_id].append(tuple(row))
    return rows


def _run(
    head: tuple[Any, ...], tags: list[tuple[Any, ...]], params: list[tuple[Any, ...]],
    latest_metrics: list[tuple[Any, ...]],
) -> "Run":  # fmt: skip
    from mlflow.entities import Metric, Param, Run, RunData, RunInfo, RunTag  # noqa: PLC0415  slow

    run_id, experiment, user, status, start, end, lifecycle_stage, artifacts, name = head
    info = RunInfo(run_id, str(experiment), user, status, start, end, lifecycle_stage, artifacts, name)
    metrics = [Metric(key, math.nan if is_nan else value, ms, step) for key, value, ms, step, is_nan in latest_metrics]
    data = RunData(metrics, [Param(*row) for row in params], [RunTag(*row) for row in tags])
    return Run(info, data)
