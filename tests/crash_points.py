"""Children that are killed at a step of what they do: `python -m tests.crash_points mlflow|optuna FOLDER`.

A process of its own forks them: it has no threads, and imports MLflow once for all. It prints a line of JSON for each
crash point, which says what the next start found.
"""

import json
import os
import shutil
import signal
import sqlite3
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

_FILE_STEPS = {"open", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "sqlite3.connect"}


class Steps:
    """Counts a process's steps, and kills it at one.

    Args:
        folder: Whose files count.
        last: The step before which it is killed; 0 for none.
        is_sql: Whether a step is a SQL statement or a commit, and not a file operation.
    """

    def __init__(self, folder: Path, last: int = 0, *, is_sql: bool = False) -> None:
        self.n, self._folder, self._last = 0, str(folder), last
        if is_sql:
            from sqlalchemy import event  # noqa: PLC0415
            from sqlalchemy.engine import Engine  # noqa: PLC0415

            event.listen(Engine, "before_cursor_execute", self._step)
            event.listen(Engine, "commit", self._step)
        else:
            sys.addaudithook(self._audit)

    def _audit(self, name: str, arguments: tuple[Any, ...]) -> None:
        paths = [os.fsdecode(argument) for argument in arguments if isinstance(argument, str | bytes | os.PathLike)]
        if name in _FILE_STEPS and any(self._folder in path for path in paths):
            self._step()

    def _step(self, *_: object) -> None:
        self.n += 1
        if self.n == self._last:
            os.kill(os.getpid(), signal.SIGKILL)


def is_killed(do: Callable[[], object], folder: Path, last: int, *, is_sql: bool) -> bool:
    """Do something in a child that is killed before one of its steps; false where it has ended before that."""
    child = os.fork()
    if child == 0:
        try:
            Steps(folder, last, is_sql=is_sql)
            do()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    _, status = os.waitpid(child, 0)
    if status and not os.WIFSIGNALED(status):
        raise RuntimeError("the child has failed")
    return os.WIFSIGNALED(status)


def each_step(do: Callable[[Path], object], prepare: Callable[[Path], object], place: Path) -> Iterator[Path]:
    """Folders in which a child was killed before its first, second, ... file operation, up to the last."""
    for last in range(1, 1000):
        folder = place / str(last)
        folder.mkdir(parents=True)
        prepare(folder)
        if not is_killed(lambda folder=folder: do(folder), folder, last, is_sql=False):  # type: ignore[misc]
            return
        yield folder


def each_statement(do: Callable[[Path], object], numbers: Iterable[int], place: Path) -> Iterator[Path]:
    """Folders in which a child was killed before one of these statements."""
    for last in numbers:
        folder = place / str(last)
        folder.mkdir(parents=True)
        assert is_killed(lambda folder=folder: do(folder), folder, last, is_sql=True), last  # type: ignore[misc]
        yield folder


def say(case: str, folder: Path, **found: Any) -> None:
    """Report a crash point."""
    print(json.dumps({"case": case, "point": folder.name, **found}), flush=True)


@contextmanager
def copied(whole: Path) -> Iterator[None]:
    """Let MLflow's database be made by a copy, which takes no seconds."""
    from pcl.studies import mlflow_creation  # noqa: PLC0415

    make = mlflow_creation._make
    mlflow_creation._make = lambda path, _: [shutil.copy(whole, path)]  # type: ignore[assignment]
    try:
        yield
    finally:
        mlflow_creation._make = make


def mlflow(place: Path) -> None:
    """Kill those that make MLflow's database: as it is made now, and by MLflow itself, as it was."""
    import mlflow.store.tracking.sqlalchemy_store as tracking  # noqa: PLC0415

    from pcl.studies.mlflow_store import Store  # noqa: PLC0415

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
    now = list(each_statement(first, [1, 12, 20, 30, 55, 60, *parts], place / "now"))
    before = list(each_statement(by_mlflow, [12, 13, 16, 22, 30, 52, 53, 54, 55, 56, *parts], place / "before"))
    half = shutil.copy(place / "before" / "30" / "mlflow.db", place / "half.db")
    with copied(place / "whole" / "mlflow.db"):
        for folder in now:
            next_start("now", folder)
        for folder in before:
            next_start("before", folder)
        for folder in each_step(first, lambda _: None, place / "absent"):
            next_start("absent", folder)
        for folder in each_step(first, lambda folder: shutil.copy(half, folder / "mlflow.db"), place / "half made"):
            next_start("half made", folder)


def optuna(place: Path) -> None:
    """Kill searches from their first step on; then those that make Optuna's tables in place, as it was."""
    from optuna.storages import RDBStorage  # noqa: PLC0415

    from tests.searches import RANGED, Driver, spec_of  # noqa: PLC0415

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

    for folder in each_statement(first, range(1, 120, 9), place / "now"):
        next_start("now", folder)
    for folder in each_statement(by_optuna, range(25, 52, 5), place / "before"):
        next_start("before", folder)
    for folder in each_step(lambda folder: Driver(RANGED, spec, folder / "s"), lambda _: None, place / "absent"):
        next_start("absent", folder)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    {"mlflow": mlflow, "optuna": optuna}[sys.argv[1]](Path(sys.argv[2]))
