"""Costly things that equal inputs always make again, made once a process: databases, measured costs, pictures."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from pcl.config.run_config import RunConfig
from pcl.storage.locks import process_lock
from pcl.studies.execution.resources import Cost
from pcl.studies.report import figures, plan
from pcl.studies.tracking import database_creation


def copy_mlflow_databases(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let MLflow, which takes seconds, make one database; the others are copies, of all processes with this folder."""
    whole, make = folder / "mlflow.db", database_creation._make

    def copied(path: Path, artifacts: Path) -> None:
        _make_whole(whole, lambda new: make(new, artifacts))
        shutil.copy(whole, path)

    patch.setattr(database_creation, "_make", copied)


def copy_optuna_databases(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let Optuna make one database, and look up once which version of its tables is the newest."""
    from optuna.storages._rdb.storage import _VersionManager  # noqa: PLC0415  machines that only train may lack it

    from pcl.studies.search import optuna_study  # noqa: PLC0415  Optuna too

    whole, make = folder / "optuna.db", optuna_study._make

    def copied(path: Path) -> None:
        _make_whole(whole, make)
        shutil.copy(whole, path)

    newest: list[str] = []
    look_up = _VersionManager.get_head_version

    def remembered(manager: _VersionManager) -> str:
        newest.extend([] if newest else [look_up(manager)])
        return newest[0]

    patch.setattr(optuna_study, "_make", copied)
    patch.setattr(_VersionManager, "get_head_version", remembered)


def _make_whole(whole: Path, make: Callable[[Path], None]) -> None:
    with process_lock(whole.with_suffix(".lock")):
        if not whole.exists():
            new = whole.with_suffix(".new")
            new.unlink(missing_ok=True)  # of a process that was killed
            make(new)
            new.rename(whole)


def keep_costs(patch: pytest.MonkeyPatch) -> None:
    """Let a study's plan measure each configuration once."""
    known: dict[tuple[str, tuple[int, ...], str, bool], Cost] = {}
    probe = plan.probe

    def remembered(config: RunConfig, seeds: Sequence[int], device: str, is_shared: bool = False) -> Cost:
        key = json.dumps(config.flat(), sort_keys=True, default=str), tuple(seeds), device, is_shared
        if key not in known:
            known[key] = probe(config, seeds, device, is_shared)
        return known[key]

    patch.setattr(plan, "probe", remembered)


def keep_pictures(patch: pytest.MonkeyPatch) -> None:
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

    patch.setattr(figures, "scatter", remembered)
