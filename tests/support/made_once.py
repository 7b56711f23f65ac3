"""Costly things that equal inputs always make again, made once a process: databases, measured costs, pictures."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import ArrayLike

from pcl.config.run_config import RunConfig
from pcl.storage.locks import process_lock
from pcl.studies.execution.resources import Cost
from pcl.studies.report import figures, plan
from pcl.studies.tracking import database_creation


def copy_databases(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let MLflow, which takes seconds, make one database; the others are copies, of all processes with this folder."""
    whole, make = folder / "whole.db", database_creation._make

    def copied(path: Path, artifacts: Path) -> None:
        with process_lock(folder / "lock"):
            if not whole.exists():
                (folder / "new.db").unlink(missing_ok=True)  # of a process that was killed
                make(folder / "new.db", artifacts)
                (folder / "new.db").rename(whole)
        shutil.copy(whole, path)

    patch.setattr(database_creation, "_make", copied)


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
