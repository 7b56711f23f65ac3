"""Processes that are killed while they make a database of MLflow or Optuna, and the next start after each."""

import io
import shutil
import sqlite3
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from launch.testbed.forks import in_fork
from tests.support import made_once
from tests.support.crash_points import Steps, crash_points

Finding = dict[str, Any]  # the case, the crash point, and what the next start found


def crashed(what: str, place: Path, stride: int) -> tuple[list[Finding], str]:
    """Return the findings of the starts after crash points, every so many, and what they said on stderr."""
    for name in {"mlflow": ("mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store"), "optuna": ("optuna",)}[what]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # MLflow uses what SQLAlchemy 2.1 has deprecated
            import_module(name)  # once, and not in each process
    found, told = in_fork(_crashed, what, str(place), stride)
    return found, told


def _crashed(what: str, place: str, stride: int) -> tuple[list[Finding], str]:
    made_once.undo()
    made_once.open_databases_quickly()
    told = io.StringIO()
    with warnings.catch_warnings(), redirect_stderr(told):
        warnings.simplefilter("ignore")
        found = list({"mlflow": mlflow, "optuna": optuna}[what](Path(place), stride))
    return found, told.getvalue()


@contextmanager
def copied(whole: Path) -> Iterator[None]:
    """Let MLflow's database be made by a copy, which takes no seconds."""
    from pcl.studies.tracking import database_creation as mlflow_creation  # noqa: PLC0415

    make = mlflow_creation._make
    mlflow_creation._make = lambda path, _: [shutil.copy(whole, path)]  # type: ignore[assignment]
    try:
        yield
    finally:
        mlflow_creation._make = make


def mlflow(place: Path, stride: int) -> Iterator[Finding]:
    """Kill those that make MLflow's database: as it is made now, and by MLflow itself, as it was."""
    import mlflow.store.tracking.sqlalchemy_store as tracking  # noqa: PLC0415

    from pcl.studies.tracking.store import Store  # noqa: PLC0415

    def first(folder: Path) -> None:
        Store(f"sqlite:///{folder}/mlflow.db").experiment("pcl/a")

    def by_mlflow(folder: Path) -> None:
        tracking.SqlAlchemyStore(f"sqlite:///{folder}/mlflow.db", str(folder))  # type: ignore[no-untyped-call]

    def next_start(case: str, folder: Path) -> Finding:
        store = Store(f"sqlite:///{folder}/mlflow.db")
        store.check()
        run = store.create(store.experiment("pcl/a"), "x", {"pcl.kind": "trial"})
        found = [run.info.run_id for run in store.find(store.experiments("pcl/"), {"pcl.kind": "trial"})]
        with closing(sqlite3.connect(folder / "mlflow.db")) as connection:
            ((root,),) = connection.execute("select artifact_location from experiments where name = 'Default'")
        names = sorted(path.name for path in folder.iterdir())
        return {"case": case, "point": folder.name, "works": found == [run], "root": root, "names": names}

    steps = Steps(place, is_sql=True)
    first(place / "whole")
    parts = [steps.n * percent // 100 for percent in (20, 60, 90)]
    now = list(crash_points(place / "now", first, at=[1, 12, 20, 30, 55, 60, *parts][::stride], is_sql=True))
    numbers = [12, 13, 16, 22, 30, 52, 53, 54, 55, 56, *parts]
    before = list(crash_points(place / "before", by_mlflow, at=numbers[::stride], is_sql=True))
    half = shutil.copy(before[len(before) // 2] / "mlflow.db", place / "half.db")
    with copied(place / "whole" / "mlflow.db"):
        for folder in now:
            yield next_start("now", folder)
        for folder in before:
            yield next_start("before", folder)
        for folder in crash_points(place / "absent", first, every=stride):
            yield next_start("absent", folder)
        given = partial(shutil.copy, half)
        for folder in crash_points(place / "half made", first, lambda f: given(f / "mlflow.db"), every=stride):
            yield next_start("half made", folder)


def optuna(place: Path, stride: int) -> Iterator[Finding]:
    """Kill searches from their first step on; then those that make Optuna's tables in place, as it was."""
    from optuna.storages import RDBStorage  # noqa: PLC0415

    from tests.support.searches import RANGED, Driver, spec_of  # noqa: PLC0415

    spec = spec_of(RANGED, n=2)
    calm = Driver(RANGED, spec, place / "calm" / "s").run()

    def first(folder: Path) -> None:
        Driver(RANGED, spec, folder / "s").run(1)

    def by_optuna(folder: Path) -> None:
        (folder / "s").mkdir()
        RDBStorage(f"sqlite:///{folder}/s/optuna.db")

    def next_start(case: str, folder: Path) -> Finding:
        driver = Driver(RANGED, spec, folder / "s").run()
        states = sorted(trial.state.name for trial in driver.optuna().trials)
        names = sorted(path.name for path in (folder / "s").iterdir())
        is_same = driver.keys == calm.keys
        return {"case": case, "point": folder.name, "works": is_same, "states": states, "names": names}

    now = list(crash_points(place / "now", first, at=range(1, 120, 9 * stride), is_sql=True))
    before = list(crash_points(place / "before", by_optuna, at=range(25, 52, 5 * stride), is_sql=True))
    made_once.copy_optuna_databases(place)
    for folder in now:
        yield next_start("now", folder)
    for folder in before:
        yield next_start("before", folder)
    for folder in crash_points(place / "absent", lambda folder: Driver(RANGED, spec, folder / "s"), every=stride):
        yield next_start("absent", folder)
