"""An MLflow store with few, typed, repeatable operations. `pcl.studies.tracking.tracker` decides what is written.

MLflow is imported at the first use: it takes more than a second, and its environment has to be set before.
"""

import logging
import os
import random
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pcl.storage.credentials import password_of, shown_uri
from pcl.studies.tracking.database_creation import bring_artifacts, creation_lock, ensure_database
from pcl.studies.tracking.database_file import StoreError, find_points, find_runs
from pcl.studies.tracking.tags import RunState

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput, Run
    from mlflow.tracking import MlflowClient

__all__ = ["Store", "StoreError", "default_uri", "tracking_uri"]

T = TypeVar("T")

# MLflow's own limits for a request
MOST_METRICS, MOST_PARAMS, MOST_TAGS = 1000, 100, 100
LONGEST_PARAM, LONGEST_TAG = 6000, 5000

# MLflow's defaults are 120 s and 7 retries. It also retries the creation of a run, so that a slow server makes two: our
# own retries look first.
_ENVIRONMENT = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}

_PROBE_S = 3.0  # how long an unreachable server may keep a user waiting
_SLOW_S = 10.0  # how long a reachable one may take to answer, as with every other request
_PAGE = 1000  # runs per request, as by MLflow's own default
_LOCKED_S = 30.0  # how long others may keep a database locked


class Store:
    """An MLflow store, opened at the first use.

    Args:
        uri: `sqlite:///FILE`, or `http://` or `https://` of a server.
        artifacts: Folder of artifacts of a database; by default next to it. A server has its own.

    Raises:
        ValueError: If the kind of store is none of these, or a password is not escaped.
    """

    def __init__(self, uri: str, artifacts: Path | None = None) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"  # the URLs contain the password
        scheme, _, rest = uri.partition("://")
        if scheme not in ("sqlite", "http", "https") or not rest.strip("/"):
            raise ValueError(
                f"The tracking URI must be sqlite:///FILE or an http(s) address, but got {shown_uri(uri)!r}."
            )
        if set("/?#") & set(password_of(uri)):  # else the password's beginning would be taken for a port, and shown
            raise ValueError(
                f"The password for {shown_uri(uri)} must have %2F, %3F and %23 for its `/`, `?` and `#`; if there "
                f"is none, the path must have %40 for its `@`."
            )
        self.database = Path(rest.removeprefix("/")).absolute() if scheme == "sqlite" else None
        self.uri = f"sqlite:///{self.database}" if self.database else uri.rstrip("/")
        self.artifacts = (artifacts or self.database.parent / "artifacts").absolute() if self.database else None
        self._client: MlflowClient | None = None
        self._opening = threading.Lock()
        self.n_answers = 0  # to requests so far: they show that a slow store makes progress

    @property
    def shown_uri(self) -> str:
        """Return the address without user and password."""
        return shown_uri(self.uri)

    def check(self) -> None:
        """Raise a ValueError with one sentence unless the store can be used. Creates nothing."""
        if self.database is None:
            self._probe()
        elif not self.database.exists():
            folder = next(parent for parent in self.database.parents if parent.exists())
            if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
                raise ValueError(f"The tracking database {self.database} cannot be made: {folder} is not writable.")
            return
        elif not self.database.is_file() or not os.access(self.database, os.W_OK):
            raise ValueError(f"The tracking database {self.database} must be a writable file.")
        try:
            self.call(lambda client: client.search_experiments(max_results=1))
        except StoreError as error:
            raise ValueError(f"The tracking store {self.shown_uri} cannot be used: {error}") from None

    def experiment(self, name: str) -> str:
        """Return the identifier of an experiment, which is created if there is none."""
        found = self.call(lambda client: client.get_experiment_by_name(name))
        if found is None:
            location = self.artifacts.as_uri() if self.artifacts else None
            try:
                return str(self.call(lambda client: client.create_experiment(name, artifact_location=location)))
            except StoreError:  # another study may have made it meanwhile
                found = self.call(lambda client: client.get_experiment_by_name(name))
                if found is None:
                    raise
        if found.lifecycle_stage != "active":
            raise StoreError(
                f"The experiment {name!r} has been deleted; `mlflow experiments restore -x {found.experiment_id}` "
                "brings it back."
            )
        return str(found.experiment_id)

    def experiments(self, prefix: str) -> list[str]:
        """Return the identifiers of all experiments whose name has this prefix."""
        pages = self._pages(
            lambda client, token: client.search_experiments(filter_string=f"name LIKE '{prefix}%'", page_token=token)
        )
        return [str(experiment.experiment_id) for experiment in pages]

    def find(
        self, experiments: list[str], tags: Mapping[str, str], status: RunState | None = None, most: int = 0
    ) -> list["Run"]:
        """Return runs that are not deleted and have these tags (and status), the oldest first; `most` or all."""
        if not experiments:
            return []
        if (path := self.database) is not None:
            found = self.call(lambda _: find_runs(path, experiments, tags, status, most))
            if found is not None:
                return found
        return self.find_by_client(experiments, tags, status, most)

    def find_by_client(
        self, experiments: list[str], tags: Mapping[str, str], status: RunState | None = None, most: int = 0
    ) -> list["Run"]:
        """Do the same through MLflow's client: for servers, and databases whose tables are not known here."""
        conditions = [f"tags.`{key}` = '{value}'" for key, value in tags.items()]
        conditions += [f"attributes.status = '{status}'"] if status else []
        order = ["attributes.start_time ASC", "attributes.run_id ASC"]
        asked, n_most = " and ".join(conditions), min(most or _PAGE, _PAGE)
        pages = self._pages(
            lambda client, token: client.search_runs(
                experiments, asked, max_results=n_most, order_by=order, page_token=token
            )
        )
        return list(islice(pages, most or None))

    def create(self, experiment: str, name: str, tags: Mapping[str, str]) -> str:
        """Create a run and return its identifier."""
        content = {key: value[:LONGEST_TAG] for key, value in tags.items() if value}
        run = self.call(lambda client: client.create_run(experiment, tags=content, run_name=name[:250]))
        return str(run.info.run_id)

    def log(
        self, run_id: str, metrics: Iterable[tuple[str, float, int, int]] = (), params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        """Write all at once: one request, unless there is more than MLflow takes. Tags are written last.

        Metrics (key, value, time in milliseconds, step) that exist already are not duplicated. Params cannot change.
        """
        from mlflow.entities import Metric, Param, RunTag  # noqa: PLC0415  MLflow takes seconds, and the board needs none

        m = [Metric(key, value, time_ms, step) for key, value, time_ms, step in metrics]
        p = [Param(key, value[:LONGEST_PARAM]) for key, value in (params or {}).items()]
        t = [RunTag(key, value[:LONGEST_TAG]) for key, value in (tags or {}).items() if value]
        while m or p or t:
            # A request has at most 1000 entries in all.
            n_metrics = min(len(m), MOST_METRICS - min(len(p), MOST_PARAMS) - min(len(t), MOST_TAGS))
            is_last = n_metrics == len(m) and len(p) <= MOST_PARAMS
            batch = m[:n_metrics], p[:MOST_PARAMS], t[:MOST_TAGS] if is_last else []
            self.call(
                lambda client, batch=batch: client.log_batch(  # type: ignore[misc]
                    run_id, metrics=batch[0], params=batch[1], tags=batch[2], synchronous=True
                )
            )
            m, p, t = m[n_metrics:], p[MOST_PARAMS:], t[MOST_TAGS:] if is_last else t

    def log_input(self, run_id: str, data: "DatasetInput") -> None:
        """Record the data of a run."""
        self.call(lambda client: client.log_inputs(run_id, [data]))

    def set_running(self, run_id: str) -> None:
        """Reopen a run."""
        self.call(lambda client: client.update_run(run_id, status=RunState.RUNNING.value))

    def end(self, run_id: str, state: RunState, time_ms: int) -> None:
        """End a run."""
        self.call(lambda client: client.set_terminated(run_id, status=state.value, end_time=time_ms))

    def delete(self, run_id: str) -> None:
        """Move a run to MLflow's bin."""
        self.call(lambda client: client.delete_run(run_id))

    def drop_tag(self, run_id: str, key: str) -> None:
        """Delete a tag that is there."""
        self.call(lambda client: client.delete_tag(run_id, key))

    def points(self, run_id: str, key: str) -> set[tuple[int, int]]:
        """Return the times in milliseconds and steps at which a metric was written."""
        return {(time_ms, step) for _, time_ms, step, _ in self.history(run_id, key)}

    def history(self, run_id: str, key: str = "") -> list[tuple[str, int, int, float]]:
        """Return key, time in milliseconds, step and value of every point of a metric, or of all metrics."""
        there = self.call(lambda _: find_points(path, run_id, key)) if (path := self.database) else None
        if there is not None:
            return there
        keys = [key] if key else list(self.call(lambda client: client.get_run(run_id)).data.metrics)
        found = [point for name in keys for point in self.call(lambda c, name=name: c.get_metric_history(run_id, name))]  # type: ignore[misc]
        return [(point.key, point.timestamp, point.step, point.value) for point in found]

    def text(self, run_id: str, name: str, text: str) -> None:
        """Write an artifact."""
        self.call(lambda client: client.log_text(run_id, text, name))

    def artifact(self, run_id: str, path: Path) -> None:
        """Copy a file or folder into the artifacts."""
        self.call(lambda client: client.log_artifact(run_id, str(path)))

    def call(self, request: Callable[["MlflowClient"], T]) -> T:
        """Return the answer to a request, repeated while others keep the database locked, or raise a `StoreError`."""
        deadline = time.monotonic() + _LOCKED_S
        while True:
            try:
                answer = request(self._open())
                self.n_answers += 1
                return answer
            except Exception as error:
                if "database is locked" not in str(error) or time.monotonic() > deadline:
                    raise StoreError(self._told(error)) from None
                time.sleep(random.uniform(0.01, 0.2))

    def _open(self) -> "MlflowClient":
        with self._opening:
            if self._client is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # MLflow uses what SQLAlchemy 2.1 has deprecated
                    from mlflow.tracking import MlflowClient  # noqa: PLC0415  MLflow takes seconds, and the board needs none

                    if self.database:
                        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401, PLC0415  slow: before the lock
                    for name in ("mlflow", "alembic"):
                        logging.getLogger(name).setLevel(logging.CRITICAL)  # failures are raised as well
                    with creation_lock(self.database):
                        if self.database and self.artifacts:
                            ensure_database(self.database, self.artifacts)
                            bring_artifacts(self.database, self.artifacts)
                        self._client = MlflowClient(self.uri, registry_uri=self.uri)
            return self._client

    def _pages(self, request: Callable[["MlflowClient", str | None], Any]) -> Iterator[Any]:
        token: str | None = None
        while True:
            page = self.call(lambda client, token=token: request(client, token))  # type: ignore[misc]
            yield from page
            token = page.token
            if not token:
                return

    def _probe(self) -> None:
        import requests  # noqa: PLC0415  comes with MLflow, which readers of its file do without

        try:
            requests.get(f"{self.uri}/health", timeout=(_PROBE_S, _SLOW_S))
        except requests.RequestException as error:
            raise ValueError(
                f"The tracking server {self.shown_uri} cannot be reached ({type(error).__name__}): "
                "start it, or leave out the tracking URI to record under the storage folder."
            ) from None

    def _told(self, error: Exception) -> str:
        """Return an error in a line, without user and password of the address."""
        text = str(error).replace(self.uri, self.shown_uri)
        text = text.replace(password, "***") if (password := password_of(self.uri)) else text
        return " ".join(text.split())[:500] or type(error).__name__


def default_uri(storage: Path) -> str:
    """Return the address of the embedded store: a database under the storage folder."""
    return f"sqlite:///{storage.absolute() / 'mlflow.db'}"


def tracking_uri(asked: str | None, storage: Path) -> str:
    """Return the store that was asked for, else MLFLOW_TRACKING_URI, else the embedded one."""
    return asked or os.environ.get("MLFLOW_TRACKING_URI") or default_uri(storage)
