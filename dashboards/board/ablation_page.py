"""A study as an ablation: what each variant reached, and how it differs from the baseline, seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.charts import Mark, intervals
from dashboards.board.frame import Surroundings, facts, note, page, section, state_of_study, study_tabs
from dashboards.board.markup import MISSING, Child, Html, number, plus_minus, tag
from dashboards.board.pairing import Estimate, estimate, paired
from dashboards.board.records import FAILED, FINISHED, Study, Trial
from dashboards.board.scales import numeric
from dashboards.board.tables import Cell, Column, TableRow, table
from dashboards.board.words import axes_of, metric_name, shown_metrics
from pcl.studies.metric_ends import larger_is_better

_MOST_VARIANTS = 40
_MOST_FAILURES = 5


@dataclass(frozen=True)
class Variants:
    """Trials that are compared.

    Attributes:
        axis: What they vary, where it is one thing.
        names: Of the trials.
        trials: Finished ones, with values of single seeds.
        baseline: The one that others are paired with.
        n_left_out: How many more there are.
    """

    axis: str
    names: list[str]
    trials: list[Trial]
    baseline: Trial
    n_left_out: int = 0


def variants_of(study: Study, asked: str = "") -> Variants | None:
    """What can be paired in a study; nothing where no two trials have finished.

    Args:
        study: With all that is recorded of it.
        asked: Run of the baseline; by default the study's own, or else the trial that began first.
    """
    whole = [trial for trial in study.ranked if trial.run.status == FINISHED and trial.by_seed(study.objective)]
    if len(whole) < 2:
        return None
    begun = sorted(whole, key=lambda trial: (trial.run.start_ms, trial.run.id))
    key = study.run.tags.get("pcl.baseline", "")
    baseline = next(
        (trial for trial in begun if trial.run.id == asked),
        next((trial for trial in begun if key and trial.run.tags.get("pcl.trial") == key), begun[0]),
    )
    chosen = whole[:_MOST_VARIANTS]
    trials = [trial for trial in begun if trial in chosen or trial is baseline]
    axes = axes_of(trials)
    if len(axes) != 1:
        return Variants("variant", [trial.run.name for trial in trials], trials, baseline, len(whole) - len(trials))
    axis, names = axes[0]
    if (numbers := numeric(names)) is not None:
        order = sorted(range(len(trials)), key=lambda i: numbers[i])
        names, trials = [names[i] for i in order], [trials[i] for i in order]
    return Variants(axis, names, trials, baseline, len(whole) - len(trials))


def ablation_page(study: Study, around: Surroundings, asked: str = "") -> str:
    """The page of a study's paired differences."""
    variants = variants_of(study, asked)
    tags = study.run.tags
    body: list[Child] = [
        tag("h1", tags.get("pcl.ablation") or study.run.name), study_tabs(study, "ablation"),
        facts([(name, tags.get(f"pcl.{name}")) for name in ("study", "scale", "fidelity", "data", "hardware")]),
    ]  # fmt: skip
    if variants is None:
        body.append(note("At least two trials have to finish before they can be paired."))
    else:
        body += [
            _head(study, variants, around),
            _failures(study),
            *(_metric(metric, variants, around) for metric in _metrics(study, variants)),
        ]
    is_moving = state_of_study(study, around.now_ms) == "running"
    return page(
        f"{study.run.name}, paired", tag("div", body, id="live", data_study=study.run.id), around, is_moving=is_moving
    )


def _metrics(study: Study, variants: Variants) -> list[str]:
    return [m for m in shown_metrics(study.objective, variants.trials) if any(t.by_seed(m) for t in variants.trials)]


def _head(study: Study, variants: Variants, around: Surroundings) -> Html:
    seeds = sorted({seed for trial in variants.trials for seed in trial.by_seed(study.objective)}, key=int)
    words = (
        "Variants of a seed share truth and evaluation data where shapes allow; differences are taken seed by seed. "
        f"Bars are 95% confidence intervals (Student's t) over seeds {', '.join(seeds)}; small dots are single seeds."
    )
    if len(seeds) < 2:
        words += " With one seed there are no intervals."
    more = f" The best {len(variants.trials)} variants are shown; {variants.n_left_out:,} are not."
    base = variants.baseline.run.name
    return tag("div", tag("p", words, more if variants.n_left_out else None),
               _chooser(variants) if around.is_live else tag("p", "Baseline: ", tag("b", base), "."))  # fmt: skip


def _failures(study: Study) -> Html | None:
    """Variants that are in no chart: a reader would take those that are for all there were."""
    failed = [trial.run for trial in study.ranked if trial.run.status == FAILED]
    told: list[Child] = [[tag("b", run.name), f": {run.cause or 'unknown'}"] for run in failed[:_MOST_FAILURES]]
    told += [f"{len(failed) - len(told):,} more"] if len(failed) > len(told) else []
    return note("Failed, and not shown: ", [["; " if i else "", part] for i, part in enumerate(told)]) if told else None


def _chooser(variants: Variants) -> Html:
    options = [
        tag("option", name, value=trial.run.id, selected=trial is variants.baseline)
        for name, trial in zip(variants.names, variants.trials, strict=True)
    ]
    chooser = tag("select", options, name="baseline", id="baseline")
    return tag(
        "form", tag("label", "Baseline ", chooser), tag("button", "Pair", type="submit"), method="get", class_="tools"
    )


def _metric(metric: str, variants: Variants, around: Surroundings) -> Html:
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
    charts = tag(
        "div",
        intervals(left, f"{name} of each variant; the table has the values", variants.axis, name),
        intervals(right, f"Difference of {name} from the baseline; the table has the values", variants.axis,
                  f"difference of {name}", 0.0),
        class_="pair",
    )  # fmt: skip
    columns = [
        Column(variants.axis), Column(f"{name}, mean ± s.e.", is_number=True), Column("seeds", is_number=True),
        Column("difference ± s.e.", is_number=True), Column("95% interval", is_number=True),
        Column("paired seeds", is_number=True), Column("verdict"), Column("Record"),
    ]  # fmt: skip
    rows = [
        _row(metric, text, trial, mean, difference, is_it, around)
        for text, trial, mean, difference, is_it in zip(
            variants.names, variants.trials, means, differences, is_base, strict=True
        )
    ]
    return section(name, charts, table(f"t-{metric.replace('/', '-')}", name, columns, rows, has_filter=False))


def _row(
    metric: str, text: str, trial: Trial, mean: Estimate, difference: Estimate, is_base: bool, around: Surroundings
) -> TableRow:
    value = Cell(plus_minus(mean.mean, mean.error), mean.mean)
    record = around.run_link(trial.run)
    if is_base:
        return TableRow((text, value, mean.n, "", "", "", "baseline", record), run=trial.run.id, is_marked=True)
    interval = MISSING if math.isnan(difference.low) else f"{number(difference.low)} to {number(difference.high)}"
    cells = (
        text, value, mean.n, Cell(plus_minus(difference.mean, difference.error), difference.mean),
        Cell(interval, difference.low), difference.n, verdict(metric, difference), record,
    )  # fmt: skip
    return TableRow(cells, run=trial.run.id)


def verdict(metric: str, difference: Estimate) -> str:
    """What an interval says: better, worse or, where it has zero in it, unclear."""
    if math.isnan(difference.low) or difference.low <= 0 <= difference.high:
        return "unclear"
    end = larger_is_better(metric)
    if end is None:
        return "larger" if difference.mean > 0 else "smaller"
    return "better" if (difference.mean > 0) == end else "worse"


def _mark(text: str, found: Estimate, points: Sequence[float], kind: str) -> Mark:
    return Mark(text, found.mean, found.low, found.high, points if len(points) > 1 else (), kind)
