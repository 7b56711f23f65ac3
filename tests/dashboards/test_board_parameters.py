"""The page of a study's settings, what axes may show, and what a winner is compared with."""

import itertools
import math
import re
import uuid
from dataclasses import replace

import pytest

from dashboards.board.charts.curves import Line, Point, curves, sparkline
from dashboards.board.charts.intervals import Mark, Panel, intervals
from dashboards.board.charts.parallel import Goal
from dashboards.board.charts.parameters import contour, slice_chart
from dashboards.board.charts.scales import Scale
from dashboards.board.html.frame import PageContext
from dashboards.board.pages.overview import overview_page
from dashboards.board.pages.parameters import metrics_of, parameters_page
from dashboards.board.pages.scoreboard import scoreboard_page
from dashboards.board.pages.study import study_page
from dashboards.board.pages.winner import published_row, winner_page
from dashboards.board.store.artifacts import Figure
from dashboards.board.store.records import REPLICATE, REPORT, Run, Study, Trial
from dashboards.paper.results import RESULTS, read_results
from pcl.config.run_config import RunConfig
from pcl.metrics.names import metric_range
from pcl.presentation.numbers import MINUS
from pcl.studies.paper.comparison import YARDSTICK
from pcl.studies.results.parameter_effects import Axis, Surface, Unknown
from pcl.studies.space.trial import REPLICATE_STAGE, REPORT_STAGE
from pcl.studies.tracking.tags import RunState
from tests.support.board_pages import Page

AROUND = PageContext(now_ms=10**12)
OBJECTIVE, MAE = "eval/kappa_rank_corr", "eval/kappa_mae"


def crossed() -> Study:
    """A grid of two settings; one has an effect, and each metric another."""
    study = Study(Run("a" * 32, "1", "s", RunState.FINISHED, 1, 2, {"pcl.objective": OBJECTIVE, "pcl.space": "toy"}))
    for i, (n, phases) in enumerate(itertools.product((1, 4, 16), ("joint", "mu kappa"))):
        run = Run(f"{i:032x}", "1", f"n_samples={n} phases={phases}", RunState.FINISHED, i, 2, {"pcl.stage": "grid"})
        run.params = {"loss.n_samples": str(n), "training.phases": phases}
        run.metrics = {"objective": n / 20, OBJECTIVE: n / 20, MAE: 4.0 if phases == "joint" else 2.0}
        study.trials.append(Trial(run))
    return study


def test_settings_are_weighed_by_the_metric_that_is_chosen() -> None:
    study = crossed()
    assert metrics_of(study) == [OBJECTIVE, MAE]
    for metric, most in ((OBJECTIVE, "n_samples"), (MAE, "phases")):
        html = parameters_page(study, metric, AROUND)
        assert f"the most important is {most}" in html
        assert html.count('class="mean"') == 3 + 2  # of the levels
        assert html.count("<figure") == 1
        links = [
            attrs["href"] for tag, attrs in Page(html).tags if tag == "a" and attrs.get("title") in (OBJECTIVE, MAE)
        ]
        assert links == [f"parameters-{'a' * 32}.html", f"parameters-{'a' * 32}-eval-kappa_mae.html"]
        assert {attrs["data-run"] for tag, attrs in Page(html).tags if tag == "circle"} == {
            trial.run.id for trial in study.trials
        }


def test_the_best_constant_kappa_is_drawn_beside_kappas_error_alone() -> None:
    study = crossed()
    assert "yardstick" not in parameters_page(study, MAE, AROUND)
    study.run.metrics["constant/kappa_mae"] = 5.933
    assert "yardstick" not in parameters_page(study, OBJECTIVE, AROUND)
    html = parameters_page(study, MAE, AROUND)
    assert "best constant κ: 5.933" in html
    (at,) = {float(y) for y in re.findall(r'<g class="yardstick"><line [^>]*y1="([^"]+)"', html)}
    dots = re.findall(r'<circle class="dot" cx="[^"]+" cy="([^"]+)"', html.partition("Importance")[0])
    assert dots
    assert 0 < at < min(map(float, dots))  # larger than all errors, and inside
    assert "κ MAE ↓ 5.933" in study_page(study, {}, AROUND)
    rows = {row["metric"]: row for row in Page(winner_page(study, [], AROUND)).rows("metrics")}
    assert rows["κ MAE ↓ of the best constant κ"]["tuning seeds, mean ± s.e."] == "5.933"


def test_histories_count_trials_in_whole_numbers() -> None:
    study = crossed()
    study.trials = study.trials[:4]
    html = parameters_page(study, OBJECTIVE, AROUND).partition("Importance")[0]
    across = re.findall(r'<text x="[^"]+" y="[^"]+" text-anchor="middle">([^<]+)</text>', html)
    assert across == ["1", "2", "3", "4"]


def heights_of_means(html: str) -> list[float]:
    """The means of levels in pixels, in the order of slices and levels."""
    return [float(y) for y in re.findall(r'<path class="mean" d="M[^ ]+ ([^h]+)h24"', html)]


def test_means_of_levels_are_of_all_trials_though_the_best_are_drawn() -> None:
    """Level b has the worst trials alone but for one: of the best, its mean would be the largest."""
    kinds, values = ["b", *"aaa", *"bbb"], [0.9, 0.8, 0.7, 0.6, 0.2, 0.1, 0.0]
    points = [Point(str(i), str(i), value) for i, value in enumerate(values)]
    goal = Goal("κ rank ↑", values)
    few, every = (slice_chart(Axis("kind", kinds), points, goal, "words", n) for n in (4, 7))
    assert [few.count("<circle"), every.count("<circle")] == [4, 7]
    of_a, of_b = heights_of_means(few)
    assert [of_a, of_b] == heights_of_means(every)
    assert of_b > of_a  # further down
    drawn = re.findall(r'data-run="(\d)"', few)
    assert drawn == ["3", "2", "1", "0"]  # the best on top


def test_levels_of_the_worst_trials_have_a_mean_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboards.board.pages.parameters._MOST_POINTS", 2)
    html = parameters_page(crossed(), OBJECTIVE, AROUND)
    slices = html.partition('id="slices"')[2].partition("</section>")[0]
    assert slices.count('class="mean"') == 3 + 2
    assert slices.count("<circle") == 2 * 2
    assert "The best 2 of 6 are drawn." in slices


def test_replicates_are_no_trials_of_the_search() -> None:
    """They run configurations again: neither history nor importance may count them twice."""
    assert (REPORT, REPLICATE) == (REPORT_STAGE, REPLICATE_STAGE)
    study, alone = crossed(), crossed()
    for stage, trial in zip((REPLICATE, REPLICATE, REPORT), study.trials[-3:], strict=True):
        metrics = dict.fromkeys(trial.run.metrics, 9.0)
        run = replace(trial.run, id=uuid.uuid4().hex, tags={"pcl.stage": stage}, metrics=metrics, start_ms=99)
        study.trials.append(Trial(run))
    assert parameters_page(study, OBJECTIVE, AROUND) == parameters_page(alone, OBJECTIVE, AROUND)
    assert [trial.run.id for trial in study.ranked] == [trial.run.id for trial in alone.ranked]
    lines = [re.findall(r'<path class="so-far"[^>]*>', overview_page([each], AROUND)) for each in (study, alone)]
    assert lines[0] == lines[1] != []
    page = Page(study_page(study, {}, AROUND))
    assert [len(page.rows(name)) for name in ("trials", "replicates", "reports")] == [6, 2, 1]


def test_equal_values_are_said_to_be_equal() -> None:
    study = crossed()
    for trial in study.trials:
        trial.run.metrics = dict.fromkeys(trial.run.metrics, 0.5)
    html = parameters_page(study, OBJECTIVE, AROUND)
    assert Unknown.SAME_VALUE.value in html
    assert Unknown.TOO_FEW.value not in html


def test_a_contour_without_a_known_cell_is_drawn_empty() -> None:
    goal = Goal("κ MAE ↓", [1.0, 1000.0], (0.0, math.inf), is_lower_better=True)
    assert goal.is_log
    x, y = Axis("x", ["a", "b"]), Axis("y", ["c", "d"])
    chart = contour(x, y, Surface(2, 2, [[math.nan] * 2] * 2), [], goal, "words")
    assert 'class="axis"' in chart


def test_a_sparkline_has_a_step_for_each_change_alone() -> None:
    best = [math.nan, 0.1, *[0.2] * 500, *[0.4] * 500]
    chart = sparkline(best, "words") or pytest.fail("no line")
    (path,) = re.findall(r' d="([^"]+)"', chart)
    assert (path.count("V"), path.count("H")) == (2, 3)
    assert f'cx="{path.rpartition("H")[2]}"' in chart  # the last trial


def test_one_trial_is_no_comparison() -> None:
    study = crossed()
    study.trials = study.trials[:1]
    assert "At least two trials" in parameters_page(study, OBJECTIVE, AROUND)


def ticks(chart: str) -> list[float]:
    """The numbers beside the upright axis."""
    texts = re.findall(r'text-anchor="end">([^<]*)</text>', chart)
    return [float(text.replace(MINUS, "-")) for text in texts]


def test_axes_stay_within_what_a_metric_can_be() -> None:
    lines = [Line("a", "a", "best", [(0, 0.2), (10, 0.999)])]
    assert max(ticks(curves(lines, "words", "κ rank", metric_range(OBJECTIVE)))) <= 1
    small = [Line("a", "a", "best", [(0, 0.001), (10, 0.5)])]
    assert 0.2 in ticks(curves(small, "words", "κ rank", metric_range(OBJECTIVE)))  # linear, other than an error's
    assert 0.2 not in ticks(curves(small, "words", "κ MAE", metric_range(MAE)))
    wide = Panel([Mark("a", 0.9, -3.0, 4.8), Mark("b", 0.5, 0.4, 0.6)], "κ rank", "words", within=(-1.0, 1.0))
    (chart,) = intervals([wide], "x").split("</svg>")[:-1]
    assert set(ticks(chart)) == {-1, -0.5, 0, 0.5, 1}
    decades = Panel([Mark("a", 3e4, -1e4, 7e4), Mark("b", 5.0, 4.0, 6.0)], "κ MAE", "words", within=(0.0, math.inf))
    assert {10, 1000} <= set(ticks(intervals([decades], "x")))
    assert Scale.over([0.0, 0.0], 0, 1, within=(0.0, math.inf)).low == 0
    assert [metric_range(m) for m in ("val/recall_at_1", MAE, "train/loss")] == [
        (0, 1), (0, math.inf), (-math.inf, math.inf),
    ]  # fmt: skip


def test_results_that_ship_are_on_a_fresh_scoreboard() -> None:
    results = read_results(RESULTS)
    page = Page(scoreboard_page([], (4, 5, 6, 7, 8), AROUND, results))
    shown = [row for name in page.tables if name.startswith("s-") for row in page.rows(name)]
    lines = [line for result in results for line in result.lines]
    assert len(shown) == sum(line.verdict != YARDSTICK for line in lines)  # which stands beside kappa's error
    assert all(row["From"].startswith("shipped") for row in shown)
    missing = [
        (name, row["Row"], row["Metric"]) for name in page.tables if name.startswith("m-") for row in page.rows(name)
    ]
    assert not {(name[2:], row, metric) for name, row, metric in missing} & {
        (result.table.replace(":", "-"), line.row, line.what) for result in results for line in result.lines
    }
    for kind, _, table in {name[2:].partition("-") for name, _, _ in missing}:
        assert f"python launch/reproduce.py --{ {'tab': 'table', 'fig': 'figure'}[kind] } {table}" in page.text


@pytest.mark.parametrize(
    ("changed", "name"),
    [({}, "MCInfoNCE"), ({"task.n_eval": "9"}, "MCInfoNCE"), ({"task.data": "cifar10h"}, "MCInfoNCE"),
     ({"task.data": "folder"}, None), ({"task.data": "embedded"}, None),
     ({"loss_name": "mine.py:Loss"}, None), ({"task.dim": "16"}, None)],
)  # fmt: skip
def test_a_winner_is_compared_with_the_paper_on_the_papers_data_alone(
    changed: dict[str, str], name: str | None
) -> None:
    task = {"task": "images"} if "task.data" in changed else {}
    config = RunConfig.of({}, scale="smoke", **task).flat()
    params = {path: str(value) for path, value in config.items()} | {"loss_name": "mc_info_nce"} | changed
    row = published_row(params)
    assert (row.name if row else None) == name


def test_an_overview_has_a_line_of_the_best_and_a_figure() -> None:
    study = crossed()
    html = overview_page([study], AROUND, {study.run.id: Figure("kappa.png", "image-a-kappa.png")})
    assert html.count('class="spark"') == 1
    assert html.count('src="image-a-kappa.png"') == 1
    assert html.count('class="s-finished"') == 1


def test_metrics_of_a_winner_have_names_and_the_objective_is_first() -> None:
    names = [row["metric"] for row in Page(winner_page(crossed(), [], AROUND)).rows("metrics")]
    assert names == ["κ rank ↑|eval/kappa_rank_corr", "κ MAE ↓|eval/kappa_mae"]
