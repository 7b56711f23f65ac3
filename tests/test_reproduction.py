"""The paper's numbers beside ours: what a line says, what is marked, and the formats."""

import argparse
import csv
import io
import math
import re
from html.parser import HTMLParser

import pytest

from dashboards.formats import FORMATS, Sheet, page
from dashboards.reproduction import Line, Ours, lines_of, winner_lines
from dashboards.scoreboard import published_grids, published_tables
from launch.reproduce_cells import Cells, Setting, chosen_tables, ours_of
from launch.reproduce_sheets import _other_lines, titles
from pcl.studies.run_content import Found
from pcl.studies.space import load_space

TABLES = {table.name: table for table in published_tables()}
SMOKE = Setting("reference", "smoke", (4, 5))
# Every label of a table or figure in the paper but fig:overview, a drawing.
LABELS = {
    "tab:toy_correctsetups", "fig:2dplot", "tab:toy_distrfamily", "fig:mc", "tab:bench_results", "fig:encoder_size",
    "tab:bench_cifar", "fig:erc", "tab:cifar_dataset", "fig:unc_retrieval", "tab:contr_exp_params", "tab:hyperparams",
    "fig:highdim", "tab:ablation_shared", "tab:hyperparams_cifar", "tab:cifar_pretraining", "tab:infonce",
    "fig:unc_images",
}  # fmt: skip


def test_every_table_and_figure_is_there() -> None:
    assert set(titles()) == LABELS


def asked(table: list[str], figure: list[str], is_all: bool = False) -> argparse.Namespace:
    return argparse.Namespace(table=table, figure=figure, all=is_all)


def test_names() -> None:
    names = list(titles())
    assert chosen_tables(asked(["infonce", "tab:bench_results"], ["mc"]), names) == [
        "fig:mc", "tab:bench_results", "tab:infonce",
    ]  # fmt: skip
    assert chosen_tables(asked([], [], is_all=True), names) == names
    with pytest.raises(ValueError, match=r"no table 'mc' of the paper here; there are toy_correctsetups, .*infonce"):
        chosen_tables(asked(["mc"], []), names)
    with pytest.raises(ValueError, match="no figure 'bench' of the paper here; there are 2dplot, mc"):
        chosen_tables(asked([], ["bench"]), names)
    with pytest.raises(ValueError, match="must be given"):
        chosen_tables(asked([], []), names)


def test_what_is_not_run_has_no_number() -> None:
    """A published number is never ours."""
    for table in published_tables():
        for line in lines_of(table, {}, "smoke"):
            assert line.ours == "not run [smoke]"
            assert line.verdict == "not run [smoke]"
            assert line.seeds == "0"


def of_metric(metric: str, *values: float) -> Ours:
    return Ours({seed: {metric: value} for seed, value in enumerate(values, start=4)})


def test_a_line_by_hand() -> None:
    values = (5.0, 6.0, 7.0, 5.5)
    ours = {"ambiguous": of_metric("eval/kappa_mae", *values)}
    line = next(line for line in lines_of(TABLES["tab:toy_correctsetups"], ours, "paper") if line.what == "κ RMSE")
    mean = sum(values) / 4
    error = math.sqrt(sum((v - mean) ** 2 for v in values) / 3 / 4)
    combined = math.sqrt(0.61**2 + error**2 + 0.005**2 / 3)
    assert line.published == "6.15±0.61"
    assert line.ours == f"{mean:.3f}±{error:.3f}"
    assert line.difference == f"{(mean - 6.15) / combined:+.1f}"
    assert line.verdict == "agrees"
    assert line.seeds == "4"


@pytest.mark.parametrize(
    ("values", "verdict"),
    [((0.97, 0.98), "better"), ((0.10, 0.12), "worse"), ((0.80, 0.84), "agrees"), ((0.8,), "one seed")],
)
def test_verdicts(values: tuple[float, ...], verdict: str) -> None:
    ours = {"ambiguous": of_metric("eval/kappa_rank_corr", *values)}
    *_, line = lines_of(TABLES["tab:toy_correctsetups"], ours, "paper")[:4]
    assert (line.what, line.verdict) == ("κ rank corr.", verdict)


def test_reduced_cells_are_all_marked() -> None:
    table = TABLES["tab:bench_cifar"]
    ours = {
        row.name: Ours({4: dict.fromkeys(table.columns, 0.3), 5: dict.fromkeys(table.columns, 0.4)}, data="embedded")
        for row in table.rows
    }
    for scale, mark in (("smoke", " [smoke, embedded]"), ("paper", " [embedded]")):
        for line in lines_of(table, ours, scale):
            assert all(cell.endswith(mark) for cell in (line.ours, line.difference, line.verdict))


def test_what_ran_away_and_what_is_not_possible() -> None:
    cells = Cells.of([TABLES["tab:bench_results"]], SMOKE)
    key = cells.keys["tab:bench_results", "HIB"]
    found = {key: Found("s", "r", {4: {"eval/mu_mae": 9.0}}, {4: "runaway kappa: its median 1e+07", 5: "NaN"})}
    ours = ours_of(TABLES["tab:bench_results"], cells, found, SMOKE)
    line = lines_of(TABLES["tab:bench_results"], ours, "smoke")[0]
    assert line.ours.startswith("runaway kappa")
    assert line.verdict == "ran away [smoke]"
    exact = Setting("exact", "smoke", (4, 5))
    images = TABLES["tab:bench_cifar"]
    none = lines_of(images, ours_of(images, Cells.of([images], exact), {}, exact), "smoke")
    assert all(line.ours.startswith("not possible: The profile 'exact'") for line in none)


def test_sizes_at_full_scale_are_the_printed_ones() -> None:
    lines = _other_lines("tab:contr_exp_params", [], Setting("reference", "paper", (4,)))
    assert len(lines) == 13 * 8 - 2
    assert {line.verdict for line in lines} == {"same"}
    assert "differs [smoke]" in {line.verdict for line in _other_lines("tab:contr_exp_params", [], SMOKE)}


def test_winners_of_grids() -> None:
    for grid in published_grids():
        assert all(load_space(name).published for name in grid.spaces)
    published = load_space("toy_mcinfonce").published
    ours = {**published, "M": "1"}
    lines = winner_lines("MCInfoNCE", published, ours, "", " [smoke]")
    assert [line.verdict for line in lines] == ["differs [smoke]", "same [smoke]", "same [smoke]"]
    assert {line.ours for line in winner_lines("x", published, None, "not run", "")} == {"not run"}


SHEET = Sheet(
    "tab:x", "A & B <script>", "50% of $x_1$", [Line("<b>a|b</b>", "κ", "1±0", "2±1 [smoke]", "2", "+1.0 [smoke]", "x")]
)


class _PageReader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_formats() -> None:
    written = {ending: render(SHEET) for ending, render in FORMATS.items()}
    assert set(written) == {"txt", "md", "csv", "tex", "html"}
    assert list(csv.reader(io.StringIO(written["csv"])))[1] == [
        "<b>a|b</b>", "κ", "1±0", "2±1 [smoke]", "2", "+1.0 [smoke]", "x",
    ]  # fmt: skip
    table = [line for line in written["md"].splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {8}
    assert all(rule in written["tex"] for rule in (r"\toprule", r"\midrule", r"\bottomrule", r"50\% of \$x\_1\$"))
    assert r"A \& B $<$script$>$" in written["tex"]
    assert r"2$\pm$1 [smoke]" in written["tex"]
    found = _PageReader()
    found.feed(written["html"])
    assert "script" not in found.tags
    assert "b" not in found.tags
    assert "<b>a|b</b>" in found.texts
    assert "2±1 [smoke]" in written["txt"]
    assert "http" not in page("x", [SHEET, SHEET])
