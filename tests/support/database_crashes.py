"""Kills processes that make a database: `python -m tests.support.database_crashes mlflow|optuna FOLDER STRIDE`.

A process of its own forks them: it has no threads, and imports MLflow once for all. It prints a line of JSON for each
crash point, which says what the next start found.
"""

import json
import shutil
import sqlite3
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.crash_points import Steps, crash_points


def say(case: str, folder: Path, **found: Any) -> None:
    """Report a crash point."""
    print(json.dumps({"case": case, "point": folder.name, **found}), flush=True)


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


def mlflow(place: Path, stride: int) -> None:
    """Kill those that make MLflow's database: as it is made now, and by MLflow itself, as it was."""
    import mlflow.store.tracking.sqlalchemy_store as tracking  # noqa: PLC0415

    from pcl.studies.tracking.store import Store  # noqa: PLC0415

    def first(folder: Path) -> None:
        Store(f"sqlite:///{folder}/mlflow.db").experiment("pcl/a")

    def by_mlflow(folder: Path) -> None:
        tracking.SqlAlchemyStore(f"sqlite:///{folder}/mlflow.db", str(folder))  # type: ignore[no-untyped-call]

    def next_start(case: str, folder: Path) -> None:
        store = Store(f"sqlite:///{folder}/mlflow.db")
        store.check()
        run = store.create(store.experiment("pcl/a"), "x", {"pcl.kind": "trial"})
        found = [run.info.run_id for run in store.find(store.experiments("pcl/"), {"pcl.kind": "trial"})]
        with closing(sqlite3.connect(folder / "mlflow.db")) as connection:
            ((root,),) = connection.execute("select artifact_location from experiments where name = 'Default'")
        say(case, folder, works=found == [run], root=root, names=sorted(path.name for path in folder.iterdir()))

    steps = Steps(place, is_sql=True)
    first(place / "whole")
    parts = [steps.n * percent // 100 for percent in (20, 60, 90)]
    now = list(crash_points(place / "now", first, at=[1, 12, 20, 30, 55, 60, *parts][::stride], is_sql=True))
    numbers = [12, 13, 16, 22, 30, 52, 53, 54, 55, 56, *parts]
    before = list(crash_points(place / "before", by_mlflow, at=numbers[::stride], is_sql=True))
    half = shutil.copy(before[len(before) // 2] / "mlflow.db", place / "half.db")
    with copied(place / "whole" / "mlflow.db"):
        for folder in now:
            next_start("now", folder)
        for folder in before:
            next_start("before", folder)
        for folder in crash_points(place / "absent", first, every=stride):
            next_start("absent", folder)
        given = partial(shutil.copy, half)
        for folder in crash_points(place / "half made", first, lambda f: given(f / "mlflow.db"), every=stride):
            next_start("half made", folder)


def optuna(place: Path, stride: int) -> None:
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

    def next_start(case: str, folder: Path) -> None:
        driver = Driver(RANGED, spec, folder / "s").run()
        states = sorted(trial.state.name for trial in driver.optuna().trials)
        names = sorted(path.name for path in (folder / "s").iterdir())
        say(case, folder, works=driver.keys == calm.keys, states=states, names=names)

    for folder in crash_points(place / "now", first, at=range(1, 120, 9 * stride), is_sql=True):
        next_start("now", folder)
    for folder in crash_points(place / "before", by_optuna, at=range(25, 52, 5 * stride), is_sql=True):
        next_start("before", folder)
    for folder in crash_points(place / "absent", lambda folder: Driver(RANGED, spec, folder / "s"), every=stride):
        next_start("absent", folder)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"mlflow": mlflow, "optuna": optuna}[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
