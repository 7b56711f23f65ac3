"""Results kept by `launch/reproduce.py --output`: each table as a small CSV with command, hardware, commit and date."""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from dashboards.paper.formats import Sheet
from dashboards.paper.results import RESULTS, Asked, Origin, Result, as_csv, joined_origin, origin_of, read_result
from launch.reproduction.cells import Cells, Setting
from launch.reproduction.grids import GridStudy
from launch.reproduction.sheets import needed_tables, needs_images
from launch.studies.requests import ReproductionRequest
from launch.studies.resume_command import asked_again
from pcl.storage.files import write_text
from pcl.storage.installation import INSIDE, command
from pcl.studies.tracking.finished_trials import Known
from pcl.studies.tracking.tags import EXPERIMENTS, RunKind, Tag
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
    request: ReproductionRequest, sheets: Sequence[Sheet], setting: Setting, origins: Origins
) -> list[Path]:
    """Write the tables for which something has been trained; returns the files."""
    assert request.output is not None
    files = []
    for sheet in sheets:
        of_lines = [origins.get((sheet.name, line.row), Origin()) for line in sheet.lines]
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
