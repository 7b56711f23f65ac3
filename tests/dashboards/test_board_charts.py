"""What the board draws of variants: names and marks that can be told apart, and stages that are not mixed."""

import itertools
import math
import re

import pytest

from dashboards.board.charts.curves import Line
from dashboards.board.charts.intervals import Mark, Panel, intervals
from dashboards.board.charts.parallel import Goal, parallel
from dashboards.board.html.frame import PageContext
from dashboards.board.pages.ablation import ablation_page, comparisons, verdict
from dashboards.board.pages.study import study_page
from dashboards.board.store.records import Run, Study, Trial
from pcl.config.experiments import EXPERIMENTS
from pcl.metrics.names import larger_is_better, metric_name
from pcl.presentation.numbers import MISSING, plus_minus
from pcl.studies.results.paired_differences import paired
from pcl.studies.results.parameter_effects import Axis
from pcl.studies.tracking.tags import RunState
from tests.support.board_pages import Page

AROUND = PageContext(now_ms=10**12)
OBJECTIVE = "eval/kappa_rank_corr"


def drawn(names: list[str], axis: str = "M") -> str:
    marks = [Mark(name, 0.1 * i, 0.1 * i - 0.2, 0.1 * i + 0.2, (0.1 * i,)) for i, name in enumerate(names)]
    return intervals([Panel(marks, "value", "values"), Panel(marks, "difference", "differences", 0.0)], axis)


def labels(chart: str, names: list[str]) -> dict[str, tuple[float, float]]:
    """Where the names stand in the first drawing."""
    first = chart.partition("</svg>")[0]
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" text-anchor="(?:middle|end)">([^<]*)</text>', first)
    lowest = max(float(y) for _, y, text in found if text in names)
    is_row = 'class="rows"' in chart
    return {text: (float(x), float(y)) for x, y, text in found if text in names and (is_row or float(y) == lowest)}


@pytest.mark.parametrize(
    ("values", "is_to_scale"),
    [([0, 1, 8, 32, 128], False), ([1, 4, 16, 64, 256, 512], True), ([4, 8, 10, 16, 32], True), ([1, 2, 100], True)],
)
def test_numbers_stand_apart_and_say_whether_that_is_to_scale(values: list[int], is_to_scale: bool) -> None:
    names = [str(value) for value in values]
    chart = drawn(names)
    found = labels(chart, names)
    assert list(found) == names
    at = [x for x, _ in found.values()]
    gaps = [right - left for left, right in itertools.pairwise(at)]
    assert min(gaps) >= 18
    assert ("M (evenly spaced)" in chart) == (not is_to_scale)
    if not is_to_scale:
        assert max(gaps) - min(gaps) < 0.2
    elif max(values) >= 30 * min(values):  # equal factors are equal ways
        slopes = [gap / math.log(b / a) for gap, (a, b) in zip(gaps, itertools.pairwise(values), strict=True)]
        assert max(slopes) - min(slopes) < 0.2


@pytest.mark.parametrize("n", [6, 40])
def test_names_that_do_not_fit_have_a_row_each(n: int) -> None:
    names = [f"dim=8 M={i} kappa_pos=16 phases=mu kappa" for i in range(n)]
    chart = drawn(names, "setting")
    assert chart.count("<svg") == 1
    assert chart.count(">setting</text>") == 1
    found = labels(chart, names)
    assert list(found) == names
    heights = [y for _, y in found.values()]
    assert all(lower - upper == 20 for upper, lower in itertools.pairwise(heights))
    assert all(x - 7.3 * len(name) >= 0 for name, (x, _) in found.items())
    assert chart.count('class="mark"') == 2 * n


def test_words_that_fit_stand_below() -> None:
    chart = drawn(["vmf", "gaussian", "laplace"])
    assert chart.count("<svg") == 2
    assert "evenly spaced" not in chart


def parallel_chart(axes: list[tuple[str, list[str]]]) -> str:
    lines = [Line(str(i), str(i), "trial") for i, _ in enumerate(axes[0][1])]
    return parallel(
        lines, [Axis(*axis) for axis in axes], Goal("κ rank ↑", [i / 10 for i, _ in enumerate(lines)]), "words"
    )


@pytest.mark.parametrize("n_more", [0, 9])
def test_numbers_of_an_axis_stand_in_their_order_though_some_trials_have_none(n_more: int) -> None:
    """Few of them evenly apart, many on a scale; what is missing stands at the lower end."""
    values = ["", "-1.0", "-4.0", "-8.0", "0.0", "1.0", "8.0", *(str(10.0 + i) for i in range(n_more))]
    chart = parallel_chart([("b", values)])
    heights = [float(path.split("L")[0].split()[1]) for path in re.findall(r'<path d="M([^"]+)"', chart)]
    order = sorted(range(len(values)), key=lambda i: -heights[i])
    assert [values[i] for i in order] == ["", *sorted(values[1:], key=float)]
    assert len(set(heights)) == len(values)
    assert f">{MISSING}</text>" in chart


@pytest.mark.parametrize("n_axes", [1, 3, 8])
def test_words_of_parallel_axes_do_not_overlap_and_are_not_cut(n_axes: int) -> None:
    letter = 7.3
    axes = [(f"loss.setting_{i}.learn_kappa_pos", ["rolled_positives_of_all", "no"]) for i in range(n_axes)]
    chart = parallel_chart(axes)
    slanted = re.findall(r'transform="translate\(([\d.]+) ([\d.]+)\) rotate\(-30\)">([^<]*)<', chart)
    flat = re.findall(r'class="label" x="([\d.]+)" y="[\d.]+" text-anchor="middle">([^<]*)<', chart)
    assert len(slanted or flat) == n_axes + 1
    for (left, upper, name), (right, *_) in itertools.pairwise(slanted):
        assert (float(right) - float(left)) * math.sin(math.pi / 6) > 12  # between the lines that the words stand on
        assert float(left) + letter * len(name) * math.cos(math.pi / 6) <= 960
        assert letter * len(name) * math.sin(math.pi / 6) <= float(upper)
    for (left, one), (right, other) in itertools.pairwise(flat):
        assert float(right) - float(left) > letter * (len(one) + len(other)) / 2
    assert chart.count("learn_kappa_pos</text>") == n_axes
    labels = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end" class="halo">([^<]*)<', chart)
    starts = sorted(float(x) - letter * len(text) for x, text in labels if text.endswith("all"))
    assert len(starts) == n_axes
    assert starts[0] >= 0
    ends = sorted({float(x) + 7 for x, _ in labels})
    assert all(start >= end for start, end in zip(starts[1:], ends, strict=False))


def test_no_difference_in_any_seed_is_the_same() -> None:
    base = {"4": 0.1, "5": 0.2}
    assert verdict(OBJECTIVE, paired(base, base)) == "same"
    assert verdict(OBJECTIVE, paired({"4": 0.1}, base)) == "same"
    assert verdict(OBJECTIVE, paired({"4": 0.2, "5": 0.1}, base)) == "unclear"  # whose mean is zero
    assert verdict(OBJECTIVE, paired({"4": 0.2}, base)) == "unclear"
    assert verdict(OBJECTIVE, paired({}, base)) == "unclear"


def trial(name: str, stage: str, values: dict[int, float]) -> Trial:
    run = Run(f"{stage[0]}{name}".ljust(32, "0"), "1", name, RunState.FINISHED, len(name), 2, {"pcl.stage": stage})
    run.metrics = {"objective": sum(values.values()) / len(values), OBJECTIVE: 0.0}
    seeds = [
        Run(f"{run.id[:-1]}{seed}", "1", "", RunState.FINISHED, 1, 2, {"pcl.seed": str(seed)}, {OBJECTIVE: value})
        for seed, value in values.items()
    ]
    return Trial(run, seeds)


def test_stages_are_not_pooled_and_those_on_report_seeds_come_first() -> None:
    study = Study(
        Run("a" * 32, "1", "s", RunState.FINISHED, 1, 2, {"pcl.objective": OBJECTIVE, "pcl.ablation": "sizes"})
    )
    study.trials = [trial(f"M={m}", "grid", {1: m / 2}) for m in (1, 2, 3)]
    study.trials += [trial(f"size={m}", "ablation", {4: m / 5, 5: m / 4}) for m in (1, 2)]
    found = comparisons(study)
    assert "over their seeds" in study_page(study, {}, AROUND)
    assert [variants.about for variants in found] == [
        "Stage ablation, on report seeds 4, 5", "Stage grid, on seed 1",
    ]  # fmt: skip
    page = Page(ablation_page(study, AROUND))
    first, second = page.rows("t-eval-kappa_rank_corr"), page.rows("t1-eval-kappa_rank_corr")
    assert [(row["size"], row["seeds"], row["paired seeds"]) for row in first] == [("1", "2", ""), ("2", "2", "2")]
    assert [(row["M"], row["seeds"], row["paired seeds"]) for row in second] == [
        ("1", "1", ""), ("2", "1", "1"), ("3", "1", "1"),
    ]  # fmt: skip
    stages = [attrs for tag, attrs in page.tags if tag == "details"]
    assert ["open" in attrs for attrs in stages] == [True, False]
    asked = Page(ablation_page(study, AROUND, study.trials[2].run.id))
    assert [row["verdict"] for row in asked.rows("t1-eval-kappa_rank_corr")][2] == "baseline"
    assert all("open" in attrs for tag, attrs in asked.tags if tag == "details")


def test_reports_of_a_search_are_compared_before_its_tuning() -> None:
    study = Study(Run("a" * 32, "1", "s", RunState.FINISHED, 1, 2, {"pcl.objective": OBJECTIVE, "pcl.space": "toy"}))
    study.trials = [trial(f"M={m}", "grid", {1: m / 10, 2: m / 9}) for m in (1, 2, 3)]
    study.trials += [trial(f"M={m}", "report", {10: m / 5, 11: m / 4}) for m in (2, 3)]
    assert [variants.about for variants in comparisons(study)] == [
        "Stage report, on report seeds 10, 11", "Stage grid, on seeds 1, 2",
    ]  # fmt: skip


def test_many_intervals_say_what_chance_does() -> None:
    study = Study(
        Run("a" * 32, "1", "s", RunState.FINISHED, 1, 2, {"pcl.objective": OBJECTIVE, "pcl.ablation": "sizes"})
    )
    study.trials = [trial(f"M={m}", "ablation", {4: m / 5, 5: m / 4}) for m in range(1, 7)]
    assert "by chance" not in ablation_page(study, AROUND)
    study.trials += [trial(f"M={m}", "ablation", {4: m / 5, 5: m / 4}) for m in range(7, 14)]
    study.trials.append(trial("M=20", "ablation", {4: 1 / 5, 5: 1 / 4}))  # as the baseline: no chance is in it
    told = "12 intervals of 95%: about 0.6 would miss zero by chance alone, were there no differences."
    assert ablation_page(study, AROUND).count(told) == 1


def test_what_has_a_better_end_has_a_name_and_means_have_their_errors_decimals() -> None:
    for metric in (metric for experiment in EXPERIMENTS.values() for metric in experiment.metrics):
        assert larger_is_better(metric) is None or "/" not in metric_name(metric), metric
    assert plus_minus(0.000366, 0.003) == "0.000 ± 0.003"
    assert plus_minus(-0.82134, 0.00004) == "\N{MINUS SIGN}0.82134 ± 0.00004"
    assert plus_minus(0.00006, 0.0007) == "0.0001 ± 0.0007"
    assert plus_minus(1.2e14, 0.3) == "1.2e+14 ± 0.300"
