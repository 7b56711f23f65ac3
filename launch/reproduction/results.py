"""Results kept by `launch/reproduce.py --output`: each table as a small CSV with command, hardware, commit and date."""

import contextlib
import os
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
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
    folder_of,
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
from pcl.studies.paper.comparison import Line, lines_taken_over
from pcl.studies.paper.published import published_tables
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
    """Return the rows that `--output` has and MLflow lacks: of the same trial, all seeds and today's numerics.

    A row of another table will do if it has all metrics.
    """
    if request.output is None or request.run.is_rerun:
        return {}
    tables = {table.name: table for table in published_tables()}
    there = _whole_rows(request.output, setting)
    kept = {}
    for table in needed_tables(names):
        for row in table.rows:
            place = (table.name, row.name)
            key = cells.keys.get(place, "")
            if key in found and not found[key].missing:
                continue
            same = [other for other, of_row in there.items() if key and of_row[0][1].trial == key]
            for other in sorted(same, key=place.__ne__):  # its own first
                lines = lines_taken_over(table, row, tables[other[0]], [line for line, _ in there[other]])
                if lines:
                    kept[place] = [(line, there[other][0][1]) for line in lines]
                    break
    return kept


def _whole_rows(folder: Path, setting: Setting) -> KeptRows:
    """Return the rows in a folder of results that have all seeds and today's numerics."""
    rows: dict[tuple[str, str], Sequence[tuple[Line, Origin]]] = {}
    for path in sorted((folder / folder_of(setting.profile, setting.scale, setting.changed)).glob("*.csv")):
        with contextlib.suppress(ValueError):  # a damaged file of a table that is not asked for
            kept = read_result(path)
            if kept.asked.of_seeds == _told(setting.seeds):
                rows |= {(kept.table, name): row for name, row in kept.by_row.items()}
    return {place: row for place, row in rows.items() if _is_whole(row, len(setting.seeds))}


def _is_whole(row: Sequence[tuple[Line, Origin]], n_seeds: int) -> bool:
    return _n_seeds(line for line, _ in row) == n_seeds and all(origin.numerics == NUMERICS for _, origin in row)


def _n_seeds(lines: Iterable[Line]) -> int:
    """Return how many seeds a row has; a metric may be undefined on some."""
    return max((int(line.seeds.partition(" ")[0]) for line in lines if line.seeds), default=0)


def _told(seeds: Sequence[int]) -> str:
    return " ".join(map(str, seeds))


def rendering(folder: Path) -> str:
    """Return a hint on how the kept results get into the manual; empty outside a checkout."""
    if INSIDE.is_dir():
        return ""
    flag = "" if folder.resolve() == RESULTS else f" --results {shlex.quote(str(folder))}"
    return f"; `python launch/docs.py{flag}` puts them into the manual"


def origins_of(cells: Cells, found: Mapping[str, Known], grids: Sequence[GridStudy], tracker: Tracker) -> Origins:
    """Return the origin of every table's rows, from their trials and studies in MLflow."""
    trained = {
        place: replace(
            joined_origin(origin_of(trial.tags, _date(trial.end_ms)) for trial in found[key].trials), trial=key
        )
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
    """Write the tables for which something has been trained; return their files.

    Rows that a file has with more seeds stay in it.
    """
    assert request.output is not None
    files = []
    for sheet in sheets:
        origin_of_row = {**origins, **{place: row[0][1] for place, row in kept.items()}}
        of_lines = [origin_of_row.get((sheet.name, line.row), Origin()) for line in sheet.lines]
        if all(origin == Origin() for origin in of_lines):
            continue
        result = Result(sheet.name, _asked(request, sheet.name, setting), sheet.lines, of_lines)
        path = request.output / result.path
        before = read_result(path).by_row if path.is_file() else {}
        rows = [before[row] if _is_less(now, before.get(row, ())) else now for row, now in result.by_row.items()]
        every = [entry for row in rows for entry in row]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, as_csv(replace(result, lines=[e[0] for e in every], origins=[e[1] for e in every])))
        files.append(path)
    return files


def _is_less(now: Sequence[tuple[Line, Origin]], before: Sequence[tuple[Line, Origin]]) -> bool:
    """Return whether a row has fewer seeds than before, or was trained before and is not now."""
    (n, is_trained), (n_before, was_trained) = (
        (_n_seeds(line for line, _ in row), any(origin != Origin() for _, origin in row)) for row in (now, before)
    )
    return was_trained and (not is_trained or n < n_before)


def _asked(request: ReproductionRequest, name: str, setting: Setting) -> Asked:
    data = setting.images.name if needs_images([name]) else "toy"
    seeds = _told(setting.seeds) if needed_tables([name]) else ""
    again = f"{command('reproduce')} {asked_again(request)}"
    return Asked(setting.profile, setting.scale, data, seeds, again, setting.changed)


def _date(end_ms: int) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(end_ms / 1000)) if end_ms else ""
