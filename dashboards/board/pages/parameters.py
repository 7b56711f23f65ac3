"""The page of a study's settings: which matter, what each does to a metric, and how two act together."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.charts.curves import Line, Point, Step, Yardstick, history
from dashboards.board.charts.parallel import Goal, parallel
from dashboards.board.charts.parameters import contour, importance_bars, slice_chart
from dashboards.board.html.frame import PageContext, cells_words, note, page_of_study, section
from dashboards.board.html.names import BEST_CONSTANT, axes_of, recorded_constant_kappa_mae, shown_metrics
from dashboards.board.store.records import Study, Trial
from pcl.metrics.names import larger_is_better, metric_name, metric_range
from pcl.presentation.markup import Child, Html, tag
from pcl.presentation.numbers import number
from pcl.studies.results.parameter_effects import (
    Axis,
    Importance,
    Method,
    Unknown,
    best_so_far,
    importance,
    surface,
)

_MOST_LINES = 300  # lines of parallel coordinates: those of the best trials
_MOST_POINTS = 400  # dots of a chart: those of the best trials
_MOST_AXES = 8
_MOST_CONTOURS = 4  # axes whose pairs have a contour
_WORDS = {
    Method.MAIN_EFFECTS: "Share of the variance over trials that the levels of each setting explain (main effects).",
    Method.PED_ANOVA: "How well each setting tells the best trials from all others (PED-ANOVA, by Optuna); the sum "
    "is 100%.",
}


@dataclass(frozen=True)
class TrialValues:
    """The trials of a study that have a value of a metric."""

    metric: str
    trials: list[Trial]  # best first
    values: list[float]  # of each
    axes: list[Axis]  # that they vary

    @property
    def is_larger_better(self) -> bool:
        """True unless the metric's lower end is the better one."""
        return larger_is_better(self.metric) is not False

    @property
    def goal(self) -> Goal:
        """Return the metric as an axis of charts."""
        is_lower_better = not self.is_larger_better
        return Goal(metric_name(self.metric), self.values, metric_range(self.metric), is_lower_better)

    @property
    def scaled(self) -> list[float]:
        """Return the values on the scale that they are drawn on."""
        return [math.log(value) for value in self.values] if self.goal.is_log else self.values

    def best(self, n: int) -> "TrialValues":
        """Return the best `n` trials, the best last: what is drawn last is on top."""
        axes = [Axis(axis.name, axis.values[:n][::-1]) for axis in self.axes]
        return TrialValues(self.metric, self.trials[:n][::-1], self.values[:n][::-1], axes)

    def by_axis(self, names: Sequence[str]) -> "TrialValues":
        """Return the same trials, with their axes in the order of `names` and all others after."""
        order = sorted(self.axes, key=lambda axis: names.index(axis.name) if axis.name in names else len(names))
        return TrialValues(self.metric, self.trials, self.values, order)

    @property
    def points(self) -> list[Point]:
        """Return a point for each trial."""
        found = zip(self.trials, self.values, strict=True)
        return [Point(trial.run.id, trial.run.name, value) for trial, value in found]


def slug(metric: str) -> str:
    """Return a metric's name as a part of a file's.

    Example:
        >>> slug("eval/kappa_mae")
        'eval-kappa_mae'
    """
    return metric.replace("/", "-")


def metrics_of(study: Study) -> list[str]:
    """Return the metrics that the page can be of, the objective first."""
    return [] if study.is_reproduction else shown_metrics(study.objective, study.ranked)


def address_of(study: Study, metric: str) -> str:
    """Return the file's name of the page of a metric."""
    return f"parameters-{study.run.id}{'' if metric == study.objective else f'-{slug(metric)}'}.html"


def trial_values(study: Study, metric: str) -> TrialValues:
    """Return the finished trials of the tuning seeds that have a finite value."""
    found = [(trial, value) for trial in study.ranked if math.isfinite(value := value_of(trial, metric, study))]
    found.sort(key=lambda pair: -pair[1] if larger_is_better(metric) is not False else pair[1])
    trials = [trial for trial, _ in found]
    axes = [Axis(name, values) for name, values in axes_of(trials)] if trials else []
    return TrialValues(metric, trials, [value for _, value in found], axes)


def value_of(trial: Trial, metric: str, study: Study) -> float:
    """Return the mean of a metric over a finished trial's seeds; NaN where it has none."""
    if not trial.has_rank:
        return math.nan
    return trial.objective if metric == study.objective else trial.run.metrics.get(metric, math.nan)


def parameters_page(study: Study, metric: str, around: PageContext) -> str:
    """Return the page of a metric."""
    found = trial_values(study, metric)
    body: list[Child]
    if study.is_reproduction:
        body = [note(cells_words())]
    elif len(found.trials) < 2 or not found.axes:
        body = [note("At least two trials with different settings have to finish before they can be compared.")]
    else:
        effects = importance(found.axes, found.scaled, is_larger_better=found.is_larger_better)
        found = found.by_axis(list(effects.shares) if isinstance(effects, Importance) else [])
        body = [
            _chooser(study, metric),
            tag("div", history_section(study, metric), _importance(effects), class_="columns"),
            _slices(found), _contours(found), parallel_section(study, found),
        ]  # fmt: skip
    title = f"{study.run.name}, parameters"
    return page_of_study(study, "parameters", title, study.run.name, body, around)


def _chooser(study: Study, metric: str) -> Html:
    links = [
        tag("a", metric_name(other), href=address_of(study, other), title=other,
            aria_current="page" if other == metric else None)
        for other in metrics_of(study)
    ]  # fmt: skip
    return tag("nav", tag("span", "Metric"), links, class_="tabs metrics", aria_label="Metric of the charts")


def history_section(study: Study, metric: str) -> Html | None:
    """Return the values of the trials in the order in which they began, and the best so far."""
    points = [Point(trial.run.id, trial.run.name, value_of(trial, metric, study)) for trial in study.searched]
    best = best_so_far([point.value for point in points], is_larger_better=larger_is_better(metric) is not False)
    if sum(math.isfinite(point.value) for point in points) < 2:
        return None
    name = metric_name(metric)
    words = f"{name} of {len(points)} trials and the best so far: {number(best[-1])}"
    steps = [Step(i, point, so_far) for i, (point, so_far) in enumerate(zip(points, best, strict=True), start=1)]
    drawn = _thinned(steps)
    chart = history(drawn, words, name, metric_range(metric), yardstick_of(study, metric))
    left_out = f" {len(drawn):,} of {len(steps):,} trials are drawn." if len(drawn) < len(steps) else ""
    return section("History", chart, words=f"{name} of every trial; the line is the best so far.{left_out}")


def yardstick_of(study: Study, metric: str) -> Yardstick | None:
    """Return the best constant kappa's error as a line of charts, where it is known."""
    constant = recorded_constant_kappa_mae(study, metric)
    return None if constant is None else Yardstick(f"{BEST_CONSTANT}: {number(constant)}", constant)


def _thinned(steps: Sequence[Step]) -> list[Step]:
    """Return about `_MOST_POINTS` trials, evenly spaced, with the best and the last among them."""
    every = math.ceil(len(steps) / _MOST_POINTS)
    best = next(step for step in steps if step.point.value == steps[-1].best)
    return [step for step in steps if step.number % every == 0 or step in (best, steps[-1])]


def _importance(found: Importance | Unknown) -> Html:
    if isinstance(found, Unknown):
        return section("Importance", note(found.value))
    most = next(iter(found.shares))
    bars = importance_bars(found, f"Importance of {len(found.shares)} settings; the most important is {most}")
    return section("Importance", bars, words=_WORDS[found.method])


def _slices(found: TrialValues) -> Html:
    points, goal = found.points, found.goal
    charts = [
        slice_chart(axis, points, goal, f"{goal.name} over {axis.name}", _MOST_POINTS)
        for axis in found.axes[:_MOST_AXES]
    ]
    left_out = _left_out(_MOST_POINTS, found)
    words = f"A dot for each trial; bars are means of levels{', over all trials' if left_out else ''}.{left_out}"
    return section("Slices", tag("div", charts, class_="slices"), words=words, name="slices")


def _contours(found: TrialValues) -> Html | None:
    pairs = list(itertools.combinations(found.axes[:_MOST_CONTOURS], 2))
    if not pairs:
        return None
    figures = []
    for x, y in pairs:
        found_surface = surface(x, y, found.values, is_log=found.goal.is_log)
        words = f"{found.goal.name} over {x.name} and {y.name}"
        chart = contour(x, y, found_surface, found.points[:_MOST_POINTS], found.goal, words)
        figures.append(tag("figure", chart, data_name=f"{x.name} and {y.name}"))
    words = (
        "Two settings at a time, the most important first: means where levels cross, a smoothed surface along ranges, "
        "blank where no trial is near. Stronger colours are better."
    )
    return section("Contours", tag("div", figures, class_="columns choice"), words=words, name="contours")


def parallel_section(study: Study, found: TrialValues) -> Html | None:
    """Return the parallel coordinates of the best trials."""
    if len(found.trials) < 2 or not found.axes or study.is_reproduction:
        return None
    drawn = found.best(_MOST_LINES)
    last = len(drawn.trials) - 1
    lines = [
        Line(trial.run.id, f"{trial.run.name}: {number(value)}", f"trial q{round(4 * i / last)}")
        for i, (trial, value) in enumerate(zip(drawn.trials, drawn.values, strict=True))
    ]
    axes = drawn.axes[:_MOST_AXES]
    more = f" The first {_MOST_AXES} of {len(found.axes)} settings that vary are drawn." if axes != drawn.axes else ""
    words = "A line for each trial, through the settings that it varied to the value it reached; stronger is better."
    chart = parallel(
        lines, axes, drawn.goal, f"Parallel coordinates of {len(lines)} trials; the table of trials has the values"
    )
    return section("What was varied", chart, words=f"{words}{_left_out(_MOST_LINES, found)}{more}", name="parallel")


def _left_out(n_most: int, found: TrialValues) -> str:
    n = len(found.trials)
    return "" if n <= n_most else f" The best {n_most} of {n:,} are drawn."
