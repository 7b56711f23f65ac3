"""Results kept by `launch/reproduce.py --output`: each table as a small CSV with command, hardware, commit and date."""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from dashboards.paper.formats import Sheet
from dashboards.paper.results import (
    RESULTS,
    Asked,
    KeptRows,
    Origin,
    Result,
    as_csv,
    joined_origin,
    origin_of,
    read_result,
)
from launch.reproduction.cells import Cells, Setting
from launch.reproduction.grids import GridStudy
from launch.reproduction.sheets import needed_tables, needs_images
from launch.studies.requests import ReproductionRequest
from launch.studies.resume_command import asked_again
from pcl.storage.files import write_text
from pcl.storage.installation import INSIDE, command
from pcl.studies.paper.comparison import Line
from pcl.studies.tracking.finished_trials import Known
from pcl.studies.tracking.tags import EXPERIMENTS, NUMERICS, RunKind, Tag
from pcl.studies.tracking.tracker import Tracker

Origins = Mapping[tuple[str, str], Origin]  # by table and row


def check_output(folder: Path | None) -> None:
    """Raise a ValueError unless the folder, which need not exist, can be written to."""
    if folder is None:
        return
    place = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"`--output` must be a folder that can be written to, but {folder} is not.")


def check_kept(request: ReproductionRequest, names: Sequence[str], setting: Setting) -> None:
    """Raise a ValueError if a kept file would be replaced by one with fewer seeds, other images or other settings."""
    if request.output is None:
        return
    for name in names:
        asked = _asked(request, name, setting)
        path = request.output / asked.path_of(name)
        if not path.is_file():
            continue
        kept = read_result(path).asked
        for is_kept, told in (
            (set(kept.of_seeds.split()) <= set(asked.of_seeds.split()), f"seeds {kept.of_seeds}"),
            (kept.data == asked.data, f"images {kept.data}"),
            (kept.changed == asked.changed, f"settings {kept.changed or 'of its profile'}"),  # two can share a folder
        ):
            if not is_kept:
                raise ValueError(f"{path} has the {told}, which would be lost; choose another `--output`.")


def kept_rows(
    request: ReproductionRequest, names: Sequence[str], setting: Setting, cells: Cells, found: Mapping[str, Known]
) -> KeptRows:
    """Return the rows that `--output` has and MLflow lacks, with the same settings, all seeds and today's numerics."""
    if request.output is None or request.run.is_rerun:
        return {}
    rows: dict[tuple[str, str], list[tuple[Line, Origin]]] = {}
    for table in needed_tables(names):
        asked = _asked(request, table.name, setting)
        path = request.output / asked.path_of(table.name)
        if not path.is_file():
            continue
        kept = read_result(path)
        if replace(kept.asked, command=asked.command) == asked:
            for line, origin in zip(kept.lines, kept.origins, strict=True):
                rows.setdefault((table.name, line.row), []).append((line, origin))
    is_recorded = {place: key in found and not found[key].missing for place, key in cells.keys.items()}
    n_seeds = len(setting.seeds)
    return {place: row for place, row in rows.items() if not is_recorded.get(place, True) and _is_whole(row, n_seeds)}


def _is_whole(row: Sequence[tuple[Line, Origin]], n_seeds: int) -> bool:
    """Return whether a row has been run on all seeds by today's numerics; a metric may be undefined on some."""
    is_current = all(origin.numerics == NUMERICS for _, origin in row)
    return is_current and any(line.seeds == str(n_seeds) for line, _ in row)


def rendering(folder: Path) -> str:
    """Return a hint on how the kept results get into the manual; empty outside a checkout."""
    if INSIDE.is_dir():
        return ""
    flag = "" if folder.resolve() == RESULTS else f" --results {shlex.quote(str(folder))}"
    return f"; `python launch/docs.py{flag}` puts them into the manual"


def origins_of(cells: Cells, found: Mapping[str, Known], grids: Sequence[GridStudy], tracker: Tracker) -> Origins:
    """Return the origin of every table's rows, from their trials and studies in MLflow."""
    trained = {
        place: joined_origin(origin_of(trial.tags, _date(trial.end_ms)) for trial in found[key].trials)
        for place, key in cells.keys.items()
        if key in found
    }
    searched = {}
    for grid in grids:
        tags = {Tag.KIND: RunKind.STUDY, Tag.STUDY: grid.folder.name}
        for run in tracker.store.find(tracker.store.experiments(EXPERIMENTS), tags, most=1):
            searched[grid.table, grid.heading] = origin_of(run.data.tags, _date(run.info.end_time or 0))
    return {**trained, **searched}


def write_results(
    request: ReproductionRequest, sheets: Sequence[Sheet], setting: Setting, origins: Origins, kept: KeptRows
) -> list[Path]:
    """Write the tables for which something has been trained; return their files."""
    assert request.output is not None
    files = []
    for sheet in sheets:
        origin_of_row = {**origins, **{place: row[0][1] for place, row in kept.items()}}
        of_lines = [origin_of_row.get((sheet.name, line.row), Origin()) for line in sheet.lines]
        if all(origin == Origin() for origin in of_lines):
            continue
        result = Result(sheet.name, _asked(request, sheet.name, setting), list(sheet.lines), of_lines)
        path = request.output / result.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, as_csv(result))
        files.append(path)
    return files


def _asked(request: ReproductionRequest, name: str, setting: Setting) -> Asked:
    data = setting.images.name if needs_images([name]) else "toy"
    seeds = " ".join(map(str, setting.seeds)) if needed_tables([name]) else ""
    again = f"{command('reproduce')} {asked_again(request)}"
    return Asked(setting.profile, setting.scale, data, seeds, again, setting.changed)


def _date(end_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(end_ms / 1000)) if end_ms else ""
