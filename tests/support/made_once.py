"""Costly things that equal inputs always make again: databases made once a test run, costs and pictures once a process.

What is made is the same; tests of the making itself call `undo` in a process of their own.
"""

import json
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import ArrayLike

from pcl.config.run_config import RunConfig
from pcl.storage.locks import process_lock
from pcl.studies.execution.resources import Cost
from pcl.studies.report import figures, plan
from pcl.studies.tracking import database_creation

_patch = pytest.MonkeyPatch()
undo = _patch.undo


def copy_mlflow_databases(folder: Path) -> None:
    """Let MLflow, which takes seconds, make one database; the others are copies, of all processes with this folder."""
    whole, make = folder / "mlflow.db", database_creation._make

    def copied(path: Path, artifacts: Path) -> None:
        _make_whole(whole, lambda new: make(new, artifacts))
        shutil.copy(whole, path)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("update experiments set artifact_location = ? || '/0'", (artifacts.as_uri(),))

    _patch.setattr(database_creation, "_make", copied)


def copy_optuna_databases(folder: Path) -> None:
    """Let Optuna make one database likewise."""
    if find_spec("optuna") is None:
        return
    from pcl.studies.search import optuna_study  # noqa: PLC0415  machines that only train may lack Optuna

    whole, make = folder / "optuna.db", optuna_study._make

    def copied(path: Path) -> None:
        _make_whole(whole, make)
        shutil.copy(whole, path)

    _patch.setattr(optuna_study, "_make", copied)


def _make_whole(whole: Path, make: Callable[[Path], None]) -> None:
    with process_lock(whole.with_suffix(".lock")):
        if not whole.exists():
            new = whole.with_suffix(".new")
            new.unlink(missing_ok=True)  # of a process that was killed
            make(new)
            new.rename(whole)


def open_databases_quickly() -> None:
    """Let SQLAlchemy not wait for the disk, and Alembic read once which version of a database is the newest."""
    if find_spec("alembic") is None:
        return
    from alembic.script import ScriptDirectory  # noqa: PLC0415  machines that only train may lack it
    from sqlalchemy import Engine, event  # noqa: PLC0415

    known: dict[str, list[str]] = {}
    get_heads = ScriptDirectory.get_heads

    def remembered(scripts: ScriptDirectory) -> list[str]:
        place = str(scripts.dir)
        if place not in known:
            known[place] = get_heads(scripts)
        return list(known[place])

    _patch.setattr(ScriptDirectory, "get_heads", remembered)
    _patch.setattr(ScriptDirectory, "get_current_head", lambda scripts: remembered(scripts)[0])
    if not event.contains(Engine, "connect", _do_not_sync):
        event.listen(Engine, "connect", _do_not_sync)


def _do_not_sync(connection: Any, _: object) -> None:
    connection.execute("pragma synchronous = off")  # a killed process loses nothing: the kernel has it


def keep_costs() -> None:
    """Let a study's plan measure each configuration once."""
    known: dict[tuple[str, tuple[int, ...], str, bool], Cost] = {}
    probe = plan.probe

    def remembered(config: RunConfig, seeds: Sequence[int], device: str, is_grouped: bool = False) -> Cost:
        key = json.dumps(config.flat(), sort_keys=True, default=str), tuple(seeds), device, is_grouped
        if key not in known:
            known[key] = probe(config, seeds, device, is_grouped)
        return known[key]

    _patch.setattr(plan, "probe", remembered)


def keep_pictures() -> None:
    """Let Matplotlib draw each scatter plot of a study's winner once."""
    known: dict[tuple[bytes, bytes, str, str], bytes] = {}
    scatter = figures.scatter

    def remembered(true: ArrayLike, predicted: ArrayLike, title: str, path: Path) -> None:
        key = np.asarray(true).tobytes(), np.asarray(predicted).tobytes(), title, path.suffix
        if key in known:
            path.write_bytes(known[key])
        else:
            scatter(true, predicted, title, path)
            known[key] = path.read_bytes()

    _patch.setattr(figures, "scatter", remembered)
