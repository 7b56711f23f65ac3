"""Sheets of `launch/reproduce.py`: every table and figure in five formats, drawn figures, and a page of all."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from dashboards.paper.figures import Curve, draw_curves, stamped
from dashboards.paper.formats import FORMATS, Sheet, page, text
from dashboards.paper.results import KeptRows, folder_of
from launch.reproduction.cells import Cells, Setting, ours_of
from launch.reproduction.grids import GridStudy
from launch.shared.command import say
from pcl.data.sources import data_folder, resolve
from pcl.storage.files import first_line, write_text
from pcl.studies.inspection.images import source_of, write_look
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.paper.comparison import Line, counts, lines_of, lost_seeds, measured_in, size_lines
from pcl.studies.paper.published import (
    Measured,
    Row,
    Table,
    published_grids,
    published_sizes,
    published_tables,
    published_titles,
)
from pcl.studies.tracking.finished_trials import Known
from pcl.training.trained_encoder import TrainedEncoder

_LOOK = {"rejection": "rejection.png", "credible": "credible.png", "certain": "certain.png"}


def needed_tables(names: Sequence[str]) -> list[Table]:
    """Return those of the named tables whose rows are trained."""
    return [table for table in published_tables() if table.name in names]


def needs_images(names: Sequence[str]) -> bool:
    """Return whether one of the named tables has rows trained on images."""
    is_grid = any(grid.name in names and any("cifar" in space for space in grid.spaces) for grid in published_grids())
    return is_grid or any(row.task == "images" for table in needed_tables(names) for row in table.rows)


def write_sheets(
    names: Sequence[str], cells: Cells, found: dict[str, Known], grids: Sequence[GridStudy], setting: Setting,
    storage: Storage, kept: KeptRows,
) -> tuple[Path, list[Sheet]]:  # fmt: skip
    """Print every table and write it in all formats; return the folder and its sheets.

    Kept rows appear as they were written.
    """
    folder = storage.path / "reproduce" / folder_of(setting.profile, setting.scale, setting.changed)
    folder.mkdir(parents=True, exist_ok=True)
    tables = {table.name: table for table in published_tables()}
    sheets = []
    for name in names:
        table = tables.get(name)
        if table is not None:
            ours = ours_of(table, cells, found, setting)
            then = {row: [line for line, _ in of_row] for (of, row), of_row in kept.items() if of == name}
            now = lines_of(table, ours)
            lines = [line for row in table.rows for line in then.get(row.name, [n for n in now if n.row == row.name])]
            lost = lost_seeds({row: of_row for row, of_row in ours.items() if row not in then})
            if table.picture and table.rows[0].name in then:
                say(f"{name} is not drawn: its encoder was trained elsewhere")
                picture = ""
            else:
                picture = _draw(table, cells, lines, setting, folder, found, storage)
        else:
            lines, lost, picture = _other_lines(name, grids, setting), "", ""
        caption = " ".join(filter(None, [_caption(name, lines, setting), lost]))
        sheet = Sheet(name, published_titles()[name], caption, lines, picture)
        sheets.append(sheet)
        say(f"\n{text(sheet)}".rstrip())
        for ending, written in FORMATS.items():
            write_text(folder / f"{sheet.file}.{ending}", written(sheet))
    words = f"{counts([line for sheet in sheets for line in sheet.lines])}."
    title = f"The paper beside ours: fidelity {setting.profile}, scale {setting.scale}"
    shown = {"index", *(sheet.file for sheet in sheets)}
    others = [path.stem for path in sorted(folder.glob("*.html")) if path.stem not in shown]
    write_text(folder / "index.html", page(title, sheets, words, others))
    return folder, sheets


def _other_lines(name: str, grids: Sequence[GridStudy], setting: Setting) -> list[Line]:
    """Return the lines of a table of grids or of sizes."""
    if name != published_sizes()["name"]:
        return [line for grid in grids if grid.table == name for line in grid.lines()]
    rows = [(table.name, row.name) for table in published_tables() for row in table.rows]
    every = Cells.of(published_tables(), setting)
    configs = {place: config for place in rows if (config := every.config(*place)) is not None}
    return size_lines(published_sizes(), configs, setting.mark("toy"))


def _caption(name: str, lines: Sequence[Line], setting: Setting) -> str:
    seeds = f", seeds {' '.join(map(str, setting.seeds))}" if name in {t.name for t in published_tables()} else ""
    if name in {grid.name for grid in published_grids()}:
        seeds = ", the winners of searches on tuning seeds: three at the scale paper, else one"
    words = [f"Ours: fidelity {setting.profile}, scale {setting.scale}{seeds}."]
    if setting.scale != "paper":
        words.append("This is not the published size: lengths and counts are reduced.")
    if setting.overrides:
        words.append(f"Changed: {', '.join(f'{path} = {value}' for path, value in setting.overrides.items())}.")
    if any("RMSE" in line.what for line in lines):
        words.append("RMSE is the paper's word: both columns are mean absolute errors.")
    return " ".join([*words, f"Verdicts: {counts(lines)}."])


def _draw(
    table: Table, cells: Cells, lines: Sequence[Line], setting: Setting, folder: Path, found: Mapping[str, Known],
    storage: Storage,
) -> str:  # fmt: skip
    """Draw a figure; returns its file's name, or "" if there is none or drawing fails, which is reported."""
    path = folder / f"{table.name.replace(':', '-')}.png"
    mark = setting.mark(table.rows[0].task)
    try:
        if table.axis:
            draw_curves(_curves(table, cells, lines), table.axis, table.title, mark, path)
        elif table.picture:
            _draw_picture(table, cells, mark, path, found, storage)
    except Exception as error:  # the numbers are there even if a picture fails
        say(f"{table.name} is not drawn: {first_line(error)}")
        path.unlink(missing_ok=True)
    return path.name if path.exists() else ""


def _curves(table: Table, cells: Cells, lines: Sequence[Line]) -> list[Curve]:
    ours = {(line.row, line.what): measured_in(line) for line in lines}
    configs = [(row, cells.config(table.name, row.name)) for row in table.rows]
    rows_at: dict[float, list[Row]] = {}  # two rows at one place differ in size: the first is the figure's own
    for row, config in configs:
        if config is not None:
            rows_at.setdefault(float(config[table.axis]), []).append(row)
    nothing = Measured(math.nan, math.nan, 0)
    return [
        Curve(
            heading,
            list(rows_at),
            [ours.get((rows[0].name, heading), nothing) for rows in rows_at.values()],
            [next((row.published[metric] for row in rows if metric in row.published), None)
             for rows in rows_at.values()],
        )
        for metric, heading in table.columns.items()
    ]  # fmt: skip


def _draw_picture(
    table: Table, cells: Cells, mark: str, path: Path, found: Mapping[str, Known], storage: Storage
) -> None:
    """Draw the posteriors or images of an encoder of the first row, from a trial whose checkpoint is left."""
    row = table.rows[0]
    if why := cells.impossible.get((table.name, row.name)):
        raise ValueError(f"not possible: {why}")
    key = cells.keys[table.name, row.name]
    trials = found[key].trials if key in found else ()
    checkpoint = next(filter(None, (storage.checkpoint_of(trial.key) for trial in trials)), None)
    if checkpoint is None:
        raise ValueError(f"there is no checkpoint of {row.name!r} in {storage}; `--rerun` trains it again.")
    if table.picture in _LOOK:  # drawn by `launch/look.py`
        trained, output = TrainedEncoder.read(checkpoint), path.parent / "look"
        images = resolve(trained.task.data, data_folder(), side=trained.task.side)
        write_look(source_of(str(checkpoint), storage), trained, images, is_other=False, output=output)
        stamped(output / _LOOK[table.picture], mark, path)
    else:
        from pcl.studies.report.figures import posteriors  # noqa: PLC0415  Matplotlib and torch take seconds
        from pcl.studies.report.predictions import Predictions  # noqa: PLC0415  with the figures

        predictions = Predictions.read(checkpoint)
        if predictions is None:
            raise ValueError(f"{checkpoint} is of a task without known posteriors.")
        posteriors(predictions, table.title, mark, path)
