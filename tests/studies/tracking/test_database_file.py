"""What is read of MLflow's database without MLflow is what its client returns."""

import math
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pcl.studies.tracking.store import Store, StoreError
from pcl.studies.tracking.tags import RunState

if TYPE_CHECKING:
    from mlflow.entities import Run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Two experiments with runs of several states; one is deleted, one has nothing."""
    store = Store(f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}")
    for space in ("a", "b"):
        experiment = store.experiment(f"pcl/{space}")
        for index in range(4):
            tags = {"pcl.kind": "trial" if index % 2 else "seed", "pcl.study": "it's one"}
            run = store.create(experiment, f"{space} {index}", tags)
            metrics = [("loss", value, 1000 + step, step) for step, value in enumerate([1.0, 0.5])]
            metrics += [("nan", math.nan, 1000, 1), ("inf", -math.inf, 1000, 1)]
            store.log(run, metrics[: index * 2], {"x": str(index), "name": "caf\u00e9"}, {"pcl.synced": "yes"})
            if index > 1:
                store.end(run, RunState.FINISHED if index == 2 else RunState.FAILED, 2000)
    store.create(experiment, "empty", {"pcl.kind": "study"})
    store.delete(store.create(experiment, "deleted", {"pcl.kind": "trial"}))
    return store


def content(run: "Run") -> dict[str, Any]:
    """All of a run but the order in which it has its parts; NaN is equal to itself as text."""
    points = sorted((m.key, str(m.value), m.timestamp, m.step) for m in run.data._metric_objs)
    return {**dict(run.info), "tags": run.data.tags, "params": run.data.params, "metrics": points}


@pytest.mark.parametrize("most", [0, 1, 3])
@pytest.mark.parametrize("status", [None, RunState.FINISHED, RunState.RUNNING])
@pytest.mark.parametrize("tags", [{}, {"pcl.kind": "trial"}, {"pcl.kind": "seed", "pcl.synced": "yes"}, {"no": "x"}])
def test_a_file_is_read_as_by_the_client(store: Store, tags: Mapping[str, str], status: str, most: int) -> None:
    experiments = store.experiments("pcl/")
    assert len(experiments) == 2
    for chosen in (experiments, experiments[:1], []):
        expected = store.find_by_client(chosen, tags, status, most) if chosen else []
        assert list(map(content, store.find(chosen, tags, status, most))) == list(map(content, expected))


def test_the_comparison_sees_everything(store: Store) -> None:
    experiments = store.experiments("pcl/")
    found = store.find(experiments, {})
    assert [run.info.run_name for run in found if run.info.run_name not in ("empty", "deleted")] == [
        f"{space} {index}" for space in "ab" for index in range(4)
    ]
    assert "deleted" not in {run.info.run_name for run in found}
    metrics = found[3].data.metrics
    assert (metrics["loss"], math.isnan(metrics["nan"]), metrics["inf"] < -1e300) == (0.5, True, True)
    assert found[3].data.params == {"x": "3", "name": "caf\u00e9"}


@pytest.mark.parametrize("key", ["", "loss", "nan", "inf", "none"])
def test_points_are_read_as_by_the_client(store: Store, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run.info.run_id for run in store.find(store.experiments("pcl/"), {})]

    def points() -> list[list[tuple[str, int, int, str]]]:
        """All that was written; NaN is equal to itself as text."""
        found = [store.history(run, key) for run in runs]
        told = [[(name, time_ms, step, str(value)) for name, time_ms, step, value in run] for run in found]
        return [sorted(run, key=lambda point: point[0]) for run in told]  # the client's order of metrics is none

    by_file = points()
    monkeypatch.setattr("pcl.studies.tracking.database_file.TABLES", {"runs": ("run_uuid", "a column of tomorrow")})
    assert by_file == points()
    assert max(map(len, by_file)) == {"": 4, "loss": 2, "none": 0}.get(key, 1)


def test_values_with_quotes_are_found(store: Store) -> None:
    assert len(store.find(store.experiments("pcl/"), {"pcl.study": "it's one"})) == 8


def test_tables_that_are_not_known_are_left_to_the_client(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    experiments = store.experiments("pcl/")
    expected = [run.info.run_id for run in store.find(experiments, {"pcl.kind": "trial"})]
    asked = []
    by_client = Store.find_by_client

    def noted(self: Store, *arguments: Any) -> Any:
        asked.append(arguments)
        return by_client(self, *arguments)

    monkeypatch.setattr(Store, "find_by_client", noted)
    assert store.find(experiments, {"pcl.kind": "trial"})
    assert not asked
    monkeypatch.setattr("pcl.studies.tracking.database_file.TABLES", {"runs": ("run_uuid", "a column of tomorrow")})
    assert [run.info.run_id for run in store.find(experiments, {"pcl.kind": "trial"})] == expected
    assert len(asked) == 1


def test_a_file_that_is_broken_is_named(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'mlflow.db'}")
    experiment = store.experiment("pcl/a")
    with closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection, connection:
        connection.execute("drop table tags")
    with pytest.raises(StoreError):
        store.find([experiment], {"pcl.kind": "trial"})


def test_artifacts_go_along_when_a_database_is_moved(tmp_path: Path) -> None:
    """A copy has its own, also while the original is there; of a database that was copied alone they stay."""
    first = Store(f"sqlite:///{tmp_path}/first/mlflow.db")
    run = first.create(first.experiment("pcl/a"), "a", {"pcl.kind": "trial"})
    kept = tmp_path / "first" / "artifacts" / run / "artifacts" / "words.txt"
    kept.parent.mkdir(parents=True)
    kept.write_text("before")  # not by the client: in a process it remembers where the artifacts of a run are
    shutil.copytree(tmp_path / "first", tmp_path / "second of them")
    second = Store(f"sqlite:///{tmp_path}/second of them/mlflow.db")
    second.text(run, "words.txt", "after")
    second.text(second.create(second.experiment("pcl/a"), "b", {}), "words.txt", "new")
    found = {p.relative_to(tmp_path).parts[0]: p.read_text() for p in tmp_path.glob(f"*/artifacts/{run}/artifacts/*")}
    assert found == {"first": "before", "second of them": "after"}
    assert len(list(tmp_path.glob("second of them/artifacts/*/artifacts/words.txt"))) == 2
    assert len(list(tmp_path.glob("first/artifacts/*/artifacts/words.txt"))) == 1
    (tmp_path / "alone").mkdir()
    shutil.copy(tmp_path / "first" / "mlflow.db", tmp_path / "alone" / "mlflow.db")
    alone = Store(f"sqlite:///{tmp_path}/alone/mlflow.db")
    (same,) = alone.find(alone.experiments("pcl/"), {"pcl.kind": "trial"})
    assert same.info.artifact_uri == kept.parent.as_uri()
