"""What `launch/reproduce.py --output` keeps: each table as a small CSV with command, hardware, commit and date."""

import argparse
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dashboards.formats import Sheet
from dashboards.results import Asked, Origin, Result, as_csv, joined_origin, origin_of
from dashboards.scoreboard import published_grids, published_tables
from launch.ending import asked_again
from launch.reproduce_cells import Cells, Setting

if TYPE_CHECKING:
    from launch.reproduce_grids import GridStudy
    from pcl.studies.known import Known
    from pcl.studies.tracking import Tracker

Origins = Mapping[tuple[str, str], Origin]  # by table and row


def check_output(folder: Path | None) -> None:
    """Raise a ValueError unless results can be written to a folder, which need not exist."""
    if folder is None:
        return
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"`--output` must be a folder that can be written to, but {folder} is not.")


def origins_of(cells: Cells, found: "Mapping[str, Known]", grids: "Sequence[GridStudy]", tracker: "Tracker") -> Origins:
    """Where the rows of all tables come from, by what MLflow has of their trials and studies."""
    trained = {
        place: joined_origin(origin_of(trial.tags, _date(trial.end_ms)) for trial in found[key].trials)
        for place, key in cells.keys.items()
        if key in found
    }
    searched = {}
    for grid in grids:
        tags = {"pcl.kind": "study", "pcl.study": grid.folder.name}
        for run in tracker.store.find(tracker.store.experiments("pcl/"), tags, most=1):
            searched[grid.table, grid.heading] = origin_of(run.data.tags, _date(run.info.end_time or 0))
    return {**trained, **searched}


def write_results(
    arguments: argparse.Namespace, sheets: Sequence[Sheet], setting: Setting, origins: Origins
) -> list[Path]:
    """Write what is to be kept, of which something has been trained; returns the files."""
    from pcl.files import write_text  # noqa: PLC0415

    files = []
    for sheet in sheets:
        lines = list(sheet.lines)
        of_lines = [origins.get((sheet.name, line.row), Origin()) for line in lines]
        if all(origin == Origin() for origin in of_lines):
            continue
        result = Result(sheet.name, _asked(arguments, sheet.name, setting), lines, of_lines)
        path = arguments.output / result.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, as_csv(result))
        files.append(path)
    return files


def _asked(arguments: argparse.Namespace, name: str, setting: Setting) -> Asked:
    tables = {table.name: table for table in published_tables()}
    grids = {grid.name: grid for grid in published_grids()}
    tasks = {row.task for row in tables[name].rows} if name in tables else set()
    has_images = "images" in tasks or (name in grids and any("cifar" in space for space in grids[name].spaces))
    data = setting.images.name if has_images else "toy"
    seeds = " ".join(map(str, setting.seeds)) if name in tables else ""
    return Asked(setting.profile, setting.scale, data, seeds, f"python launch/reproduce.py {asked_again(arguments)}")


def _date(end_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(end_ms / 1000)) if end_ms else ""
