"""The page of a study: trials from best to worst, what they varied, learning curves, and causes of failures."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial

from dashboards.board.charts.curves import Line, curves
from dashboards.board.html.frame import (
    PageContext,
    badge,
    cells_words,
    facts,
    note,
    page_of_study,
    section,
    state_of,
    state_of_study,
)  # fmt: skip
from dashboards.board.html.names import (
    BEST_CONSTANT,
    axes_of,
    cell_name,
    recorded_constant_kappa_mae,
    short_names,
    shown_metrics,
    telling_apart,
)
from dashboards.board.html.tables import Cell, Column, TableRow, table
from dashboards.board.pages.parameters import history_section, parallel_section, trial_values, yardstick_of
from dashboards.board.store.records import REPORT, Study, Trial, differing
from pcl.metrics.names import KAPPA_MAE, TRAIN_S, larger_is_better, metric_name, metric_range
from pcl.presentation.durations import moment, rounded_duration
from pcl.presentation.markup import Child, Html, join, tag
from pcl.presentation.numbers import MISSING, number, plus_minus
from pcl.storage.installation import command
from pcl.studies.tracking.tags import RunState, Tag, shown_commit

Histories = Mapping[str, Sequence[tuple[int, float]]]

_MOST_CURVES = 24
_MOST_LETTERS = 32  # of the axes of a printed table: with more, a row has them in one cell


def learning(study: Study) -> list[Trial]:
    """Return the trials whose curves are drawn: the best, or first, and those that run."""
    running = [trial for trial in study.trials if trial.run.status is RunState.RUNNING]
    order = study.cells if study.is_reproduction else study.ranked
    best = [trial for trial in order if trial.run.status is not RunState.RUNNING and trial.run.metrics]
    return [*best[: max(0, _MOST_CURVES - len(running))], *running[:_MOST_CURVES]]


def study_page(study: Study, histories: Histories, around: PageContext) -> str:
    """Return the page of a study, with the objective's history of the trials of `learning`."""
    state = state_of_study(study, around.now_ms)
    found = None if study.is_reproduction else trial_values(study, study.objective)
    progress = [history_section(study, study.objective) if found else None, _curves(study, histories)]
    body: list[Child] = [
        _facts(study, state, around), tag("div", progress, class_="columns") if any(progress) else None,
        _ranking(study, around), parallel_section(study, found) if found else None, _failures(study, around),
        _settings(study),
    ]  # fmt: skip
    heading = join(study.run.name, " ", badge(state))
    return page_of_study(study, "study", study.run.name, heading, body, around)


def trials_table(
    name: str, caption: str, study: Study, trials: Sequence[Trial], around: PageContext, first: str = "Rank"
) -> Html:
    """Return a table of trials with their axes and main metrics; of a reproduction, by name and unranked."""
    are_cells = study.is_reproduction
    axes = telling_apart(trials) if are_cells else axes_of(trials) or [("trial", [trial.run.name for trial in trials])]
    metrics = shown_metrics(study.objective, trials)
    stages = {trial.stage for trial in trials}
    n_letters = sum(max(map(len, (axis, *values))) for axis, values in axes)
    is_folded = len(axes) > 1 and n_letters > _MOST_LETTERS
    columns = [
        Column("Cell" if are_cells else first), Column("State"),
        *([Column("Stage")] if len(stages) > 1 else []),
        *(Column(axis, where="screen" if is_folded else "") for axis, _ in axes),
        *([Column("What was varied", where="print")] if is_folded else []),
        *(Column(metric_name(m), is_number=True, words=m) for m in metrics),
        Column("seeds", is_number=True, words="Seeds that did not fail, of all", where="wide"),
        Column("time", is_number=True, words="Spent training", where="wide"), Column("Record"),
    ]  # fmt: skip
    folded = _folded(axes) if is_folded else []
    rows = []
    for index, trial in enumerate(trials):
        state, n_seeds = state_of(trial.run), len(trial.seeds) or 1
        spent = trial.run.metrics.get(TRAIN_S, math.nan)
        cells: list[Cell | Child] = [
            cell_name(trial) if are_cells else Cell(index + 1 if trial.has_rank else MISSING, index + 1),
            Cell(partial(badge, state), state),
            *([trial.stage] if len(stages) > 1 else []), *(values[index] for _, values in axes),
            *([folded[index]] if is_folded else []),
            *(_metric(trial, metric, study.objective) for metric in metrics),
            Cell(f"{n_seeds - len(trial.lost)}/{n_seeds}" if trial.lost else n_seeds, n_seeds - len(trial.lost)),
            Cell("" if math.isnan(spent) else rounded_duration(spent), spent),
            Cell(partial(around.run_link, trial.run)),
        ]  # fmt: skip
        rows.append(TableRow(cells, state, trial.run.id, trial is study.winner))
    return table(name, caption, columns, rows, kind="cells" if are_cells else "", is_long=True)


def _folded(axes: Sequence[tuple[str, Sequence[str]]]) -> list[str]:
    """Return each trial's values of all axes, named by the last parts of their paths where these are unique."""
    names = short_names([axis for axis, _ in axes])
    of_trials = zip(*(values for _, values in axes), strict=True)
    return [", ".join(f"{n}={v}" for n, v in zip(names, values, strict=True) if v) for values in of_trials]


def _metric(trial: Trial, metric: str, objective: str) -> Cell:
    value, error = trial.run.metrics.get(metric), math.nan
    if metric == objective and not math.isnan(trial.objective):
        value, error = trial.objective, trial.error
    return Cell(plus_minus(value, error), math.nan if value is None else value)


def _facts(study: Study, state: str, around: PageContext) -> Html:
    tags, run = study.run.tags, study.run
    gpu, cpu = study.seconds(of_gpu=True), study.seconds(of_gpu=False)
    constant = recorded_constant_kappa_mae(study, KAPPA_MAE)
    goal = {True: "largest ", False: "smallest ", None: ""}[larger_is_better(study.objective)]
    pairs: list[tuple[str, Child]] = [
        ("space", tags.get(Tag.SPACE)), ("scale", tags.get(Tag.SCALE)), ("fidelity", tags.get(Tag.FIDELITY)),
        ("objective", goal + study.objective), ("data", tags.get(Tag.DATA)), ("hardware", tags.get(Tag.HARDWARE)),
        ("trial time on GPUs", rounded_duration(gpu) if gpu else None),
        ("trial time on CPUs", rounded_duration(cpu) if cpu else None),
        (BEST_CONSTANT, f"{metric_name(KAPPA_MAE)} {number(constant)}" if constant is not None else None),
        ("began", f"{moment(run.start_ms)} UTC"),
        ("ended", f"{moment(run.end_ms)} UTC" if run.end_ms and state != "running" else None),
        ("last report", f"{moment(study.last_ms)} UTC" if state in ("running", "silent") else None),
        ("commit", shown_commit(tags.get(Tag.COMMIT, ""))), ("source", tags.get(Tag.SOURCE)),
        ("record", around.run_link(run)), ("trials", around.trials_link(study)),
    ]  # fmt: skip
    warning = note(
        "It has not ended and has not reported for a while: its driver may have been killed. ",
        tag("code", _command(study)), " continues it.",
    ) if state == "silent" else None  # fmt: skip
    return join(facts(pairs), warning)


def _command(study: Study) -> str:
    """Return the command that resumes a study."""
    tags = study.run.tags
    if study.is_reproduction:
        return f"{command('reproduce')} ..."
    return f"{command('ablate' if tags.get(Tag.ABLATION) else 'grid')} --resume {tags.get(Tag.STUDY, '')}"


def _ranking(study: Study, around: PageContext) -> Html:
    seeds, first = ("the tuning seeds", "winner") if study.selects else ("their seeds", "best")
    words: Child = (
        f"Sorted from best to worst by the mean of the objective over {seeds}; trials that lost seeds come after all "
        f"whose every seed finished. The {first} is highlighted. Choose trials to compare them and their curves."
    )
    order = study.ranked
    if study.is_reproduction:
        words = [cells_words(), " Choose trials to compare their settings."]
        order = study.cells
    parts: list[Child] = [trials_table("trials", "Trials", study, order, around)]
    if study.replicates:
        parts += [
            tag("h3", "On more seeds"), tag("p", "The best of a stage, run again where its winner was not clear."),
            trials_table("replicates", "Trials on more seeds", study, study.replicates, around, "No."),
        ]  # fmt: skip
    if study.reports:
        parts += [
            tag("h3", "On the report seeds"), tag("p", "They select nothing: this is what the best are worth."),
            trials_table("reports", "Trials on the report seeds", study, study.reports, around, "No."),
        ]  # fmt: skip
    return section("Trials", parts if study.trials else note("None has begun yet."), words=words, name="ranking")


def _curves(study: Study, histories: Histories) -> Html | None:
    lines = []
    for trial in reversed(learning(study)):
        points = histories.get(trial.run.id, ())
        if points:
            kind = "best" if trial is study.winner else state_of(trial.run)
            kind = REPORT if kind == "finished" and trial.stage == REPORT else kind
            lines.append(Line(trial.run.id, trial.run.name, kind, points))
    if not lines:
        return None
    legend = tag("ul", [tag("li", text, class_=kind) for kind, text in (
        ("best", "winner"), ("finished", "finished"), ("running", "running"), ("failed", "failed"),
    ) if any(line.kind == kind for line in lines)], class_="legend")  # fmt: skip
    name, first = metric_name(study.objective), "first" if study.is_reproduction else "best"
    words = f"{name} over batches, the mean over seeds, of {len(lines)} trials: the {first}, and those that run."
    title, bounds = f"Learning curves of {len(lines)} trials", metric_range(study.objective)
    chart = curves(lines, title, name, bounds, yardstick_of(study, study.objective))
    return section("Learning curves", chart, legend, words=words, name="curves")


def _failures(study: Study, around: PageContext) -> Html | None:
    causes: dict[str, list[Child]] = defaultdict(list)
    for trial in study.trials:
        if trial.run.status is RunState.FAILED:
            causes[trial.run.cause or "unknown"].append(join(trial.run.name, " ", around.run_link(trial.run)))
        for seed in trial.lost:
            if trial.run.status is not RunState.FAILED:
                causes[seed.cause].append(join(seed.name, " ", around.run_link(seed)))
    if not causes:
        return None
    parts: list[Child] = []
    for cause, links in sorted(causes.items(), key=lambda item: -len(item[1])):
        items = [tag("li", link) for link in links]
        count = f"{len(links):,} {'run' if len(links) == 1 else 'runs'}"
        parts.append(
            tag("details", tag("summary", tag("b", cause), f" ({count})"), tag("ul", items), open=len(parts) < 3)
        )
    words = "Trials, and single seeds of trials that went on without them, by what ended them."
    return section("Failures", parts, words=words, name="failures")


def _settings(study: Study) -> Html | None:
    all_params = [trial.run.params for trial in study.trials if trial.run.params]
    if not all_params:
        return None
    apart = differing(all_params) | {"seeds"}
    shared = {path: value for path, value in all_params[0].items() if path not in apart}
    rows = [tag("tr", tag("th", path, scope="row"), tag("td", value)) for path, value in sorted(shared.items())]
    return tag("details", tag("summary", f"{len(shared)} settings that all trials share"),
               tag("table", tag("tbody", rows), class_="settings"), class_="shared")  # fmt: skip
