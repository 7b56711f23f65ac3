"""The scoreboard: ours beside what the paper prints."""

import math
import statistics

import pytest

from dashboards.board.html.frame import PageContext
from dashboards.board.pages.scoreboard import scoreboard_page
from dashboards.paper.headline import headline
from dashboards.paper.results import RESULTS, Asked, Origin, Result, read_results
from pcl.presentation.numbers import MINUS, number
from pcl.studies.paper.comparison import Line
from pcl.studies.paper.published import Measured, Row, compare, published_tables, read, report_seeds
from tests.support.board_pages import Page, Stored, shown
from tests.support.board_store import score


def test_ours_on_the_scoreboard_are_runs_of_the_rows_configuration(stored: Stored) -> None:
    page = stored.page("scoreboard.html")
    rows = [row for row in page.rows("s-tab-toy_correctsetups") if row["Row"] == "ambiguous"]
    shipped = [row for row in rows if row["From"] == "shipped|reference · paper · toy"]
    (kept,) = [result for result in read_results(RESULTS) if result.table == "tab:toy_correctsetups"]
    of_kept = {line.what: line.ours.replace("±", " ± ") for line in kept.lines if line.row == "ambiguous"}
    of_shipped = {row["Metric"]: row["Ours"] for row in shipped}
    assert of_shipped["κ rank corr."] == of_kept["κ rank corr."]
    constant = of_kept["κ RMSE of the best constant"]
    assert of_shipped["κ RMSE"] == f"{of_kept['κ RMSE']}|best constant κ: {constant}"
    rows = [row for row in rows if row not in shipped]
    values = [score(0.5, seed) for seed in (4, 5, 6)]
    (row,) = [row for row in rows if row["Metric"] == "κ rank corr."]
    assert (row["Published"], row["Ours"], row["Seeds"]) == ("0.82 ± 0.04", f"{shown(values)} smoke", "3")
    (error,) = [row["Ours"] for row in rows if row["Metric"] == "κ RMSE"]
    smallest = published_row("tab:toy_correctsetups", "ambiguous").constant_kappa_mae("reference", "smoke", (4, 5, 6))
    assert f"best constant κ: {number(smallest)}" in error
    spread = statistics.stdev(values) / math.sqrt(3)
    combined = math.sqrt(spread**2 + 0.04**2 + 0.005**2 / 3)
    assert row["Difference"] == f"{(statistics.fmean(values) - 0.82) / combined:+.1f}".replace("-", MINUS)
    tables = [name for name in page.tables if name.startswith(("s-", "m-"))]
    assert {name[2:] for name in tables} == {table.name.replace(":", "-") for table in published_tables()}
    trained = {
        "ambiguous",
        "vMF",
        "MCInfoNCE",
        "K = 4",
        "D' = 10",
        "D = 10",
        "D = 10, sizes of the text",
        "independent networks",
    }
    lines = [row for name in tables if name.startswith("s-") for row in page.rows(name)]
    assert {
        row["Row"] for row in lines if not row["From"].startswith("shipped")
    } <= trained  # no published number is ours
    assert all(
        set(row) == {"Row", "Metric", "Published"} for name in tables if name[0] == "m" for row in page.rows(name)
    )


def published_row(table: str, name: str) -> Row:
    (rows,) = [of_paper.rows for of_paper in published_tables() if of_paper.name == table]
    return next(row for row in rows if row.name == name)


def test_rows_without_a_truth_at_hand_have_no_best_constant() -> None:
    rows = [
        ("toy_correctsetups", "injective", (4,)), ("ablation_shared", "shared backbone", (4,)),
        ("bench_cifar", "MCInfoNCE", (4,)), ("toy_correctsetups", "ambiguous", ()),
    ]  # fmt: skip
    for table, name, seeds in rows:
        assert published_row(f"tab:{table}", name).constant_kappa_mae("reference", "smoke", seeds) is None


def test_shipped_errors_of_kappa_stand_beside_the_best_constant_where_it_is_kept() -> None:
    asked, origin = Asked("reference", "paper", "toy", "4 5", "command"), Origin("GPU", "2.11.0", "abc", "2026-11-18")
    lines = [Line("MCInfoNCE", name, "6.15±0.61", told) for name, told in
             (("κ RMSE", "5.000±0.100"), ("κ RMSE of the best constant", "2.206"))]  # fmt: skip
    result = Result("tab:bench_results", asked, lines, [origin, origin])
    (row,) = Page(scoreboard_page([], (4, 5), PageContext(), [result])).rows("s-tab-bench_results")
    assert row["Ours"].startswith("5.000 ± 0.100|best constant κ: 2.206")


def test_published_rows_can_be_trained_and_compared() -> None:
    assert report_seeds() == (4, 5, 6, 7, 8)
    names = [table.name for table in published_tables()]
    assert len(set(names)) == len(names) == 15
    for table in published_tables():
        for row in table.rows:
            assert set(row.published) <= set(table.columns)
            config = row.config("reference", "paper")
            params = {path: str(value) for path, value in config.items()}
            elsewhere = {"encoder.weights": "resnet", "task.data": "cifar10h"} if row.task == "images" else {}
            assert row.matches({**params, **elsewhere, "seeds": "4"})
            assert not row.matches({**params, "training.lr": "0.5"})
    assert compare("eval/kappa_mae", read("6.15±0.61"), Measured(6.15, 0.1, 5)).verdict == "agrees"
    assert compare("eval/kappa_mae", read("6.15±0.61"), Measured(0.5, 0.1, 5)).verdict == "better"
    assert compare("eval/kappa_rank_corr", read("0.82±0.04"), Measured(0.1, 0.01, 5)).verdict == "worse"
    assert compare("eval/kappa_rank_corr", read("0.77"), Measured(0.1, 0.01, 5)).verdict == ""
    two_roundings = (2 * 0.005**2 / 3) ** 0.5  # an error of ±0.00 may be 0.005
    found = compare("eval/mu_rank_corr", read("0.98±0.00 (tab:x)"), Measured(0.98 - 1.9 * two_roundings, 0.0, 5))
    assert (round(found.difference, 6), found.verdict) == (-1.9, "agrees")


def test_a_published_number_of_one_fold_is_compared_with_the_spread_of_our_folds() -> None:
    one_fold, ours = read("0.33 (one fold)"), Measured(0.38, 0.01, 4)
    combined = math.hypot(0.02, 0.01, 0.005 / math.sqrt(3))  # of one fold, of their mean, of the last printed digit

    found = compare("test/entropy_rank_corr", one_fold, ours)

    assert found.difference == pytest.approx(0.05 / combined)
    assert found.verdict == "better"
    assert compare("test/entropy_rank_corr", one_fold, Measured(0.36, 0.01, 4)).verdict == "agrees"
    assert compare("test/entropy_rank_corr", one_fold, Measured(0.38, math.nan, 1)).verdict == ""


def test_the_tables_say_which_numbers_are_of_one_fold() -> None:
    of_one = {
        (t.name, text.text)
        for t in published_tables()
        for r in t.rows
        for text in r.published.values()
        if text.is_of_one_fold
    }

    assert {name for name, _ in of_one} == {"tab:cifar_pretraining"}
    assert len(of_one) == 4


def test_shipped_results_of_earlier_numerics_agree_with_nothing_today(stored: Stored) -> None:
    page = stored.page("scoreboard.html")
    rows = [row for table in page.tables if table.startswith("s-") for row in page.rows(table)]
    older = [row for row in rows if "numerics 3, now" in row["Ours"]]
    assert older
    assert {row["Verdict"].partition("|")[0][-6:] for row in older} == {", then"}
    n_agreeing = sum(row["From"].startswith("shipped") and row["Verdict"].startswith("agrees|") for row in rows)
    assert f"{n_agreeing} agree, {len(older)} of earlier numerics" in page.text
    assert headline(read_results(RESULTS)) in page.text
