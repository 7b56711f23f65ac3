"""MLflow's tables: those of its file if their schema is known, else a mirror in memory that MLflow's client fills."""

import math
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pcl.studies.tracking.database_file import TABLES, Database, FileDatabase, Row
from pcl.studies.tracking.store import Store, StoreError
from pcl.studies.tracking.tags import EXPERIMENTS, RunKind, RunState, Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

_NEWS_S = 2.0  # how old the content may be
_WHOLE_S = 600.0  # after this long, all is read again: updates do not tell of deletions
_OVERLAP_MS = 60_000  # writers' clocks differ
_PAGE = 250  # runs per request: a busy server takes seconds for a thousand


def open_database(store: Store) -> Database:
    """Return the tables of a store's file if they are known here, else a mirror's."""
    if store.database is not None and (file := FileDatabase(store.database)).is_known():
        return file
    return Mirror(store)


class Mirror(Database):
    """A store's studies in memory; brought up to date when it is read."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._memory = sqlite3.connect(":memory:", check_same_thread=False)
        for table, columns in TABLES.items():
            self._memory.execute(f"create table {table} ({', '.join(columns)})")
        for table in ("tags", "params", "latest_metrics", "metrics"):
            self._memory.execute(f"create index {table}_of_run on {table} (run_uuid, key)")
        self._seen: dict[str, int] = {}  # hash of what is known of every run
        self._complete: set[tuple[str, str]] = set()  # histories of runs that have ended
        self._n_changes = 0
        self._asked_s = self._whole_s = -math.inf
        self._is_reading = False

    def begin(self) -> None:
        """Read all in the background: studies, then their trials, the latest first. What is known so far is shown."""
        self._is_reading = True
        threading.Thread(target=self._read, name="mirror", daemon=True).start()

    @property
    def reading(self) -> str:
        """Return how much has been read, until all has been read once."""
        return f"{len(self._seen):,} runs" if self._is_reading else ""

    def version(self) -> str:
        """Return how often the content has changed."""
        with self._lock:
            if not self._is_reading and time.monotonic() - self._asked_s > _NEWS_S:
                self._refresh()
                self._asked_s = time.monotonic()
            return str(self._n_changes)

    def rows(self, sql: str, *values: object) -> list[Row]:
        """Return the rows of a query, as of the last `version`."""
        with self._lock:
            if math.isinf(self._asked_s) and not self._is_reading:
                self.version()
            return self._memory.execute(sql, values).fetchall()

    def histories(self, runs: Sequence[str], metric: str) -> list[Row]:
        """Return the points of a metric; fetch histories that are not known or not yet complete."""
        with self._lock:
            running = {run for (run,) in self.rows("select run_uuid from runs where status = ?", RunState.RUNNING)}
            for run in runs:
                if (run, metric) in self._complete:
                    continue
                points = self._store.call(lambda client, run=run: client.get_metric_history(run, metric))  # type: ignore[misc]
                self._memory.execute("delete from metrics where run_uuid = ? and key = ?", (run, metric))
                self._insert("metrics", [_metric(run, p.key, p.value, p.timestamp, p.step) for p in points])
                if run not in running:
                    self._complete.add((run, metric))
            return super().histories(runs, metric)

    def _read(self) -> None:
        try:
            with self._lock:
                experiments = self._experiments()
            for condition in (f"tags.`{Tag.KIND}` = '{RunKind.STUDY}'", ""):
                for page in self._pages(experiments, condition):
                    with self._lock:
                        for run in page:
                            self._take(run)
            self._asked_s = self._whole_s = time.monotonic()
        except StoreError:
            pass  # the next request reads everything again, or raises the error
        finally:
            self._is_reading = False

    def _refresh(self) -> None:
        experiments = self._experiments()
        if time.monotonic() - self._whole_s > _WHOLE_S:
            found = [run for page in self._pages(experiments, "") for run in page]
            for run_id in set(self._seen) - {run.info.run_id for run in found}:
                self._forget(run_id)
                self._n_changes += 1
            self._whole_s = time.monotonic()
        else:
            ((start, end),) = self._memory.execute("select max(start_time), max(end_time) from runs")
            news = [
                f"attributes.status = '{RunState.RUNNING}'", f"attributes.start_time > {(start or 0) - _OVERLAP_MS}",
                f"attributes.end_time > {(end or 0) - _OVERLAP_MS}",
            ]  # fmt: skip
            found = [run for condition in news for page in self._pages(experiments, condition) for run in page]
        for run in found:
            self._take(run)

    def _experiments(self) -> list[str]:
        identifiers = self._store.experiments(EXPERIMENTS)
        known = {identifier for (identifier,) in self._memory.execute("select experiment_id from experiments")}
        for identifier in set(identifiers) - known:
            experiment = self._store.call(lambda client, i=identifier: client.get_experiment(i))  # type: ignore[misc]
            self._insert("experiments", [(identifier, experiment.name, "active")])
        for identifier in known - set(identifiers):
            self._memory.execute("delete from experiments where experiment_id = ?", (identifier,))
        return identifiers

    def _pages(self, experiments: list[str], condition: str) -> Iterator[Sequence["Run"]]:
        token = None
        while experiments:
            page = self._store.call(
                lambda client, token=token: client.search_runs(  # type: ignore[misc]
                    experiments, condition, max_results=_PAGE, page_token=token
                )
            )
            yield page
            token = page.token
            if not token:
                break

    def _take(self, run: "Run") -> None:
        info, data = run.info, run.data
        run_id = info.run_id
        head = (
            run_id, info.run_name, info.status, info.start_time, info.end_time, "active", info.experiment_id,
            info.user_id, info.artifact_uri,
        )  # fmt: skip
        metrics = [_metric(run_id, m.key, m.value, m.timestamp, m.step) for m in data._metric_objs]
        content = hash((head, frozenset(data.tags.items()), frozenset(data.params), frozenset(metrics)))
        if self._seen.get(run_id) == content:
            return
        self._forget(run_id)
        self._insert("runs", [head])
        self._insert("tags", [(key, value, run_id) for key, value in data.tags.items()])
        self._insert("params", [(key, value, run_id) for key, value in data.params.items()])
        self._insert("latest_metrics", metrics)
        self._seen[run_id] = content
        self._n_changes += 1

    def _forget(self, run_id: str) -> None:
        for table in ("runs", "tags", "params", "latest_metrics"):
            self._memory.execute(f"delete from {table} where run_uuid = ?", (run_id,))
        self._seen.pop(run_id, None)
        self._complete = {history for history in self._complete if history[0] != run_id}

    def _insert(self, table: str, rows: Iterable[Row]) -> None:
        places = ",".join("?" * len(TABLES[table]))
        self._memory.executemany(f"insert into {table} values ({places})", rows)


def _metric(run_id: str, key: str, value: float, time_ms: int, step: int) -> Row:
    """Return a metric's row as in MLflow's own tables, where NaN is a mark, not a value."""
    is_nan = math.isnan(value)
    return key, 0.0 if is_nan else value, time_ms, step, int(is_nan), run_id
