"""The page of an ablation: what each variant reached, and its differences from the baseline, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.charts.intervals import Mark, Panel, intervals
from dashboards.board.charts.scales import numeric
from dashboards.board.html.frame import PageContext, cells_words, facts, note, page_of_study, section
from dashboards.board.html.names import axes_of, shown_metrics
from dashboards.board.html.tables import Cell, Column, TableRow, table
from dashboards.board.store.records import REPORT, Study, Trial
from pcl.metrics.names import metric_name, metric_range
from pcl.presentation.markup import Child, Html, tag
from pcl.presentation.numbers import MISSING, fixed, plus_minus
from pcl.studies.paper.published import report_seeds
from pcl.studies.results.paired_differences import by_chance, paired, verdict
from pcl.studies.results.statistics import Estimate, estimate
from pcl.studies.tracking.tags import RunState, Tag

_MOST_VARIANTS = 40
_MOST_FAILURES = 5


@dataclass(frozen=True)
class Variants:
    """Trials of one stage that are compared."""

    stage: str  # of the study; seeds of tuning and of report are not mixed
    axis: str  # what they vary, where it is one thing
    names: list[str]  # of the trials
    trials: list[Trial]  # finished ones, with values of single seeds
    baseline: Trial  # the one that others are paired with
    seeds: list[str]  # that they have
    n_left_out: int = 0  # number of further variants

    @property
    def is_report(self) -> bool:
        """Return whether they are on report seeds."""
        return self.stage == REPORT or set(self.seeds) <= set(map(str, report_seeds()))

    @property
    def about(self) -> str:
        """Return the stage and the seeds in words."""
        kind = "report seed" if self.is_report else "seed"
        plural = "s" if len(self.seeds) > 1 else ""
        return f"Stage {self.stage or 'unknown'}, on {kind}{plural} {', '.join(self.seeds)}"


def comparisons(study: Study, asked: str = "") -> list[Variants]:
    """Return the variants of every stage with at least two trials, those on report seeds first.

    The baseline is the run `asked` for, else the study's own, else the trial of the stage that began first.
    """
    stages = list(dict.fromkeys(trial.stage for trial in study.trials))
    found = [_variants(study, stage, asked) for stage in stages]
    return sorted((variants for variants in found if variants), key=lambda variants: not variants.is_report)


def _variants(study: Study, stage: str, asked: str) -> Variants | None:
    whole = study.in_order(
        trial
        for trial in study.trials
        if trial.stage == stage and trial.run.status is RunState.FINISHED and trial.by_seed(study.objective)
    )
    if len(whole) < 2:
        return None
    begun = sorted(whole, key=lambda trial: (trial.run.start_ms, trial.run.id))
    key = study.run.tags.get(Tag.BASELINE, "")
    baseline = next(
        (trial for trial in begun if trial.run.id == asked),
        next((trial for trial in begun if key and trial.run.tags.get(Tag.TRIAL) == key), begun[0]),
    )
    chosen = whole[:_MOST_VARIANTS]
    trials = [trial for trial in begun if trial in chosen or trial is baseline]
    axes = axes_of(trials)
    axis, names = axes[0] if len(axes) == 1 else ("variant", [trial.run.name for trial in trials])
    if len(axes) == 1 and (numbers := numeric(names)) is not None:
        order = sorted(range(len(trials)), key=lambda i: numbers[i])
        names, trials = [names[i] for i in order], [trials[i] for i in order]
    seeds = sorted({seed for trial in trials for seed in trial.by_seed(study.objective)}, key=_place_of)
    return Variants(stage, axis, names, trials, baseline, seeds, len(whole) - len(trials))


def ablation_page(study: Study, around: PageContext, asked: str = "") -> str:
    """Return the page of a study's paired differences."""
    tags = study.run.tags
    names = ("study", "scale", "fidelity", "data", "hardware")
    body: list[Child] = [facts([(name, tags.get(f"pcl.{name}")) for name in names])]
    found = [] if study.is_reproduction else comparisons(study, asked)
    if study.is_reproduction:
        body.append(note(cells_words()))
    elif found:
        body += [_words(_n_intervals(study, found)), _failures(study)]
    else:
        body.append(note("At least two trials of a stage have to finish before they can be paired."))
    for index, variants in enumerate(found):
        content = [
            _head(variants, around),
            *(_metric(metric, variants, around, index) for metric in _metrics(study, variants)),
        ]
        is_open = index == 0 or any(trial.run.id == asked for trial in variants.trials)
        body.append(
            tag("details", tag("summary", tag("b", variants.about), f" ({len(variants.trials)} variants)"), content,
                open=is_open, class_="stage")
            if len(found) > 1 else [tag("p", tag("b", variants.about), "."), content]
        )  # fmt: skip
    heading = tags.get(Tag.ABLATION) or study.run.name
    return page_of_study(study, "ablation", f"{study.run.name}, paired", heading, body, around)


def _metrics(study: Study, variants: Variants) -> list[str]:
    return [m for m in shown_metrics(study.objective, variants.trials) if any(t.by_seed(m) for t in variants.trials)]


def _n_intervals(study: Study, found: Sequence[Variants]) -> int:
    """Return how many differences with intervals the page has."""
    return sum(
        paired(trial.by_seed(metric), variants.baseline.by_seed(metric)).has_interval
        for variants in found
        for metric in _metrics(study, variants)
        for trial in variants.trials
        if trial is not variants.baseline
    )


def _words(n_intervals: int) -> Html:
    return tag(
        "p",
        "Variants of a seed share truth and evaluation data where shapes allow; differences are taken seed by seed, "
        "within a stage. Bars are 95% confidence intervals (Student's t) over its seeds; small dots are single seeds. ",
        by_chance(n_intervals),
    )


def _head(variants: Variants, around: PageContext) -> Html:
    words = ["With one seed there are no intervals."] if len(variants.seeds) < 2 else []
    if variants.n_left_out:
        words.append(f"The best {len(variants.trials)} variants are shown; {variants.n_left_out:,} are not.")
    base = variants.baseline.run.name
    return tag("div", tag("p", " ".join(words)) if words else None,
               _chooser(variants) if around.is_live else tag("p", "Baseline: ", tag("b", base), "."))  # fmt: skip


def _failures(study: Study) -> Html | None:
    """Return a note on failed variants, which are in no chart: a reader would take the others for all."""
    failed = [trial.run for trial in study.ranked if trial.run.status is RunState.FAILED]
    told: list[Child] = [[tag("b", run.name), f": {run.cause or 'unknown'}"] for run in failed[:_MOST_FAILURES]]
    told += [f"{len(failed) - len(told):,} more"] if len(failed) > len(told) else []
    return note("Failed, and not shown: ", [["; " if i else "", part] for i, part in enumerate(told)]) if told else None


def _chooser(variants: Variants) -> Html:
    options = [
        tag("option", name, value=trial.run.id, selected=trial is variants.baseline)
        for name, trial in zip(variants.names, variants.trials, strict=True)
    ]
    chooser = tag("select", options, name="baseline")
    return tag(
        "form", tag("label", "Baseline ", chooser), tag("button", "Pair", type="submit"), method="get", class_="tools"
    )


def _metric(metric: str, variants: Variants, around: PageContext, index: int) -> Html:
    name = metric_name(metric)
    base = variants.baseline.by_seed(metric)
    values = [trial.by_seed(metric) for trial in variants.trials]
    means = [estimate(list(of_seeds.values())) for of_seeds in values]
    differences = [paired(of_seeds, base) for of_seeds in values]
    is_base = [trial is variants.baseline for trial in variants.trials]
    left = [
        _mark(text, mean, list(of_seeds.values()), "base" if is_it else "")
        for text, mean, of_seeds, is_it in zip(variants.names, means, values, is_base, strict=True)
    ]
    right = [
        _mark(text, difference, [v - base[s] for s, v in of_seeds.items() if s in base], verdict(metric, difference))
        if not is_it
        else Mark(text, 0.0, math.nan, math.nan, kind="base")
        for text, difference, of_seeds, is_it in zip(variants.names, differences, values, is_base, strict=True)
    ]
    low, high = metric_range(metric)
    charts = intervals(
        [
            Panel(left, name, f"{name} of each variant; the table has the values", within=(low, high)),
            Panel(right, f"difference of {name}",
                  f"Difference of {name} from the baseline; the table has the values", 0.0, (low - high, high - low)),
        ],
        variants.axis,
    )  # fmt: skip
    columns = [
        Column(variants.axis), Column(f"{name}, mean ± s.e.", is_number=True), Column("seeds", is_number=True),
        Column("difference ± s.e.", is_number=True), Column("95% interval", is_number=True),
        Column("paired seeds", is_number=True, where="wide"), Column("verdict"), Column("Record", where="wide"),
    ]  # fmt: skip
    rows = [
        _row(metric, text, trial, mean, difference, is_it, around)
        for text, trial, mean, difference, is_it in zip(
            variants.names, variants.trials, means, differences, is_base, strict=True
        )
    ]
    place = f"t{index or ''}-{metric.replace('/', '-')}"
    return section(name, charts, table(place, name, columns, rows, has_filter=False))


def _row(
    metric: str, text: str, trial: Trial, mean: Estimate, difference: Estimate, is_base: bool, around: PageContext
) -> TableRow:
    value = Cell(plus_minus(mean.mean if trial.recorded(metric) else None, mean.error), mean.mean)
    record = around.run_link(trial.run)
    if is_base:
        return TableRow((text, value, mean.n, "", "", "", "baseline", record), run=trial.run.id, is_marked=True)
    ends = [fixed(end, difference.error) for end in (difference.low, difference.high)]
    interval = MISSING if math.isnan(difference.low) else " to ".join(ends)
    told = plus_minus(difference.mean if difference.n else None, difference.error)
    cells = (
        text, value, mean.n, Cell(told, difference.mean),
        Cell(interval, difference.low), difference.n, verdict(metric, difference), record,
    )  # fmt: skip
    return TableRow(cells, run=trial.run.id)


def _mark(text: str, found: Estimate, points: Sequence[float], kind: str) -> Mark:
    return Mark(text, found.mean, found.low, found.high, points if len(points) > 1 else (), kind)


def _place_of(seed: str) -> tuple[int, str]:
    """Return a key that sorts seeds as numbers, other texts first."""
    return int(seed) if seed.isdecimal() else -1, seed
