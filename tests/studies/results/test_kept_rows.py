"""Rows of kept results that are not trained again, in the same table and in others."""

from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.paper.formats import Sheet
from dashboards.paper.results import Origin, as_csv, read_result
from launch.reproduction.cells import Cells, Setting, left_of
from launch.reproduction.results import kept_rows, write_results
from launch.reproduction.sheets import _curves, write_sheets
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.paper.comparison import Line, lines_taken_over
from pcl.studies.paper.published import read
from pcl.studies.tracking.finished_trials import Found, Known
from pcl.studies.tracking.tags import NUMERICS
from tests.support.kept_results import ASKED, DAY_MS, TABLES, TAGS, keep


def test_rows_that_are_kept_in_full_are_not_trained_again(tmp_path: Path) -> None:
    (path,) = keep(tmp_path)
    setting, names = Setting("reference", "paper", (4, 5, 6)), ["tab:toy_correctsetups", "fig:2dplot"]
    cells = Cells.of([TABLES[name] for name in names], setting)
    request = replace(ASKED, output=tmp_path)
    place, other = ("tab:toy_correctsetups", "ambiguous"), ("tab:toy_correctsetups", "clear")
    rows = kept_rows(request, names, setting, cells, {})
    assert list(rows) == [place, other]  # a seed of `clear` has ended early, which is a result; others have not run
    key = cells.keys[place]
    assert {trial.key for trial in left_of(cells, {}, rows)} == set(cells.trials) - {key, cells.keys[other]}
    # A row of another table needs the same trial.
    both = Cells.of([*(TABLES[name] for name in names), TABLES["tab:bench_results"]], setting)
    assert key in {trial.key for trial in left_of(both, {}, rows)}
    # What MLflow has in full is newer; what is asked for otherwise is another result.
    whole = {key: Known((4, 5, 6), (Found("s", "r", {seed: {} for seed in (4, 5, 6)}, {}, TAGS, DAY_MS),))}
    part = {key: Known((4, 5, 6), (Found("s", "r", {4: {}}, {}, TAGS, DAY_MS),))}
    more = Setting("reference", "paper", (4, 5, 6, 7))
    assert kept_rows(request, names, setting, cells, whole) == {other: rows[other]}
    assert kept_rows(request, names, setting, cells, part) == rows
    assert kept_rows(request, names, more, Cells.of([TABLES[name] for name in names], more), {}) == {}
    assert kept_rows(replace(request, run=replace(request.run, is_rerun=True)), names, setting, cells, {}) == {}
    assert kept_rows(replace(request, output=None), names, setting, cells, {}) == {}
    now = read_result(path)
    older = replace(now, origins=[replace(origin, numerics="3" * bool(origin.numerics)) for origin in now.origins])
    path.write_text(as_csv(older))
    assert kept_rows(request, names, setting, cells, {}) == {}
    # Other settings, images or weights make another trial, even under the same names.
    path.write_text(as_csv(replace(now, origins=[replace(origin, trial="other") for origin in now.origins])))
    assert kept_rows(request, names, setting, cells, {}) == {}
    path.write_text("damaged")
    assert kept_rows(request, names, setting, cells, {}) == {}


def test_rows_that_are_kept_are_written_again_as_they_were(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = keep(tmp_path / "kept")
    setting, name = Setting("reference", "paper", (4, 5, 6)), "tab:toy_correctsetups"
    cells, request = Cells.of([TABLES[name]], setting), replace(ASKED, output=tmp_path / "kept")
    rows = kept_rows(request, [name], setting, cells, {})
    _, sheets = write_sheets([name], cells, {}, [], setting, Storage(tmp_path), rows)
    before = read_result(path)
    write_results(request, sheets, setting, {}, rows)
    again = read_result(path)
    assert again == before
    assert {line.ours for line in again.lines if line.row == "injective"} == {"not run"}
    assert {origin.date for origin in again.origins} == {"2026-11-15", "2026-11-16", ""}
    assert "6.300±0.035" in capsys.readouterr().out


@pytest.mark.parametrize(("n_before", "n_now", "stays"), [(3, 2, True), (3, 0, True), (3, 3, False), (2, 3, False)])
def test_a_row_stays_while_a_file_has_more_of_its_seeds(n_before: int, n_now: int, stays: bool, tmp_path: Path) -> None:
    """As when a run is stopped before it has reached the row, or has today's numerics for some of the seeds."""
    (path,) = keep(tmp_path)
    now = read_result(path)

    def with_seeds(n: int, ours: str) -> list[Line]:
        return [replace(x, ours=ours, seeds=str(n)) if x.row == "clear" and x.seeds else x for x in now.lines]

    older = [replace(origin, numerics="3" * bool(origin.numerics)) for origin in now.origins]
    path.write_text(as_csv(replace(now, lines=with_seeds(n_before, "before"), origins=older)))
    setting, request = Setting("reference", "paper", (4, 5, 6)), replace(ASKED, output=tmp_path)
    trained = {
        ("tab:toy_correctsetups", row): Origin(numerics=NUMERICS) for row in ("ambiguous", *["clear"] * (n_now > 0))
    }
    lines = with_seeds(n_now, "now" if n_now else "not run")
    assert write_results(request, [Sheet("tab:toy_correctsetups", "", "", lines)], setting, trained, {}) == [path]
    again = read_result(path)
    numerics = {line.row: origin.numerics for line, origin in zip(again.lines, again.origins, strict=True)}
    assert {line.ours for line in again.lines if line.row == "clear" and line.seeds} == {"before" if stays else "now"}
    assert numerics == {"ambiguous": NUMERICS, "clear": "3" if stays else NUMERICS, "injective": ""}
    assert [(line.row, line.what) for line in again.lines] == [(line.row, line.what) for line in now.lines]


def test_a_row_is_that_of_another_table_with_the_same_trial(tmp_path: Path) -> None:
    keep(tmp_path)
    names = ["tab:bench_results", "fig:mc", "tab:toy_distrfamily"]
    setting = Setting("reference", "paper", (4, 5, 6))
    cells, request = Cells.of([TABLES[name] for name in names], setting), replace(ASKED, output=tmp_path)
    rows = kept_rows(request, names, setting, cells, {})
    assert list(rows) == [("fig:mc", "K = 512"), ("tab:bench_results", "MCInfoNCE")]  # a family has other metrics
    now = read_result(tmp_path / "reference-paper" / "tab-toy_correctsetups.csv")
    ambiguous = {line.what: line for line in now.lines if line.row == "ambiguous"}
    expected = {what: replace(line, row="MCInfoNCE") for what, line in ambiguous.items()}
    assert {line.what: line for line, _ in rows["tab:bench_results", "MCInfoNCE"]} == expected
    error, constant, order = (line for line, _ in rows["fig:mc", "K = 512"])
    assert constant == replace(ambiguous["κ RMSE of the best constant"], row="K = 512")
    for line in (error, order):
        published = f"{ambiguous[line.what].published} (tab:toy_correctsetups)"
        assert line == replace(ambiguous[line.what], row="K = 512", published=published)
    assert {origin.date for _, origin in rows["fig:mc", "K = 512"]} == {"2026-11-15"}
    key = cells.keys["fig:mc", "K = 512"]
    assert key in {trial.key for trial in left_of(cells, {}, rows)}  # for the family's metrics
    without = Cells.of([TABLES[name] for name in names[:2]], setting)
    assert key not in {trial.key for trial in left_of(without, {}, rows)}


def test_numbers_taken_over_are_compared_only_with_what_their_row_prints() -> None:
    other, lines = TABLES["tab:toy_correctsetups"], [
        Line("ambiguous", "κ RMSE", "6.15±0.61", "6.3±0.1", "5", "+0.2", "agrees", "1.2"),
        Line("ambiguous", "κ rank corr.", "0.82±0.04", "undefined", "0", "—", "no value"),
    ]  # fmt: skip
    table = replace(TABLES["fig:mc"], columns={"eval/kappa_mae": "κ RMSE"})
    silent, wordy, loud = (replace(table.rows[0], **given) for given in (
        {"published": {}}, {"published": {}, "note": "metrics worsen"}, {"published": {"eval/kappa_mae": read("4.55")}},
    ))  # fmt: skip
    (line,) = lines_taken_over(table, silent, other, lines)
    assert line == Line("K = 1", "κ RMSE", "not printed", "6.3±0.1", "5", "—", "nothing printed")
    assert [line.verdict for line in lines_taken_over(table, wordy, other, lines)] == ["no number printed"]
    assert lines_taken_over(table, loud, other, lines) == []
    order = replace(table, columns={"eval/kappa_rank_corr": "κ rank corr."})
    assert lines_taken_over(order, silent, other, lines) == []  # undefined: no number to compare anew
    assert lines_taken_over(table, silent, other, lines[1:]) == []


def test_a_curve_has_what_is_kept() -> None:
    table = TABLES["fig:mc"]
    cells = Cells.of([table], Setting("reference", "paper", (4, 5, 6)))
    lines = [
        Line("K = 4", "κ RMSE", "4.55", "58.915±11.734", "5"), Line("K = 1", "κ RMSE", "4.55", "not run", "0"),
        Line("K = 4", "κ RMSE of the best constant", "not printed", "2.206"),
    ]  # fmt: skip
    curve = next(curve for curve in _curves(table, cells, lines) if curve.name == "κ RMSE")
    found = dict(zip(curve.x, curve.ours, strict=True))
    assert (found[4].mean, found[4].error, found[4].n) == (58.915, 11.734, 5)
    assert [found[1].n, found[16].n] == [0, 0]
