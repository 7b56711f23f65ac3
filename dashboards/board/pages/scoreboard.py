"""The scoreboard: the paper's tables and figures beside numbers of our runs in MLflow."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboards.board.html.frame import PageContext, badge, facts, page, section
from dashboards.board.html.tables import Cell, Column, TableRow, filter_all, table
from dashboards.board.store.records import Run, Trial
from pcl.metrics.undefined import mean_of
from pcl.presentation.markup import Child, Html, join, tag
from pcl.presentation.numbers import MINUS, MISSING, number, plus_minus
from pcl.storage.installation import command
from pcl.studies.paper import published as paper
from pcl.studies.paper.comparison import mark_of
from pcl.studies.results.statistics import estimate
from pcl.studies.tracking.tags import Failure, FailureKind, RunState, Tag, is_current

_COLUMNS = (
    Column("Row"), Column("Metric", words="By the paper's name; what it calls RMSE is a mean absolute error"),
    Column("Published", is_number=True), Column("Ours", is_number=True), Column("Seeds", is_number=True),
    Column("Difference", is_number=True, words="Ours less published, in combined standard errors"), Column("Verdict"),
    Column("Fidelity"), Column("Scale"), Column("Data"), Column("Record"),
)  # fmt: skip


_STATES = (paper.AGREES, "better", "worse", "no verdict", "failed", "not measured", "unfinished", "not run")
_WITHOUT_NUMBER = _STATES[4:]


@dataclass(frozen=True)
class Setting:
    """The setting of results: what those of one row may differ in."""

    fidelity: str
    scale: str
    data: str  # which images; toy where there are none
    lacks_weights: bool = False  # of images: whether they start from scratch where the published ones do not

    @property
    def mark(self) -> str:
        """Return what is not as published, in words."""
        return mark_of(self.scale, self.data, *(["not pretrained"] if self.lacks_weights else [])).strip(" []")


@dataclass
class Found:
    """The seeds of a row in one setting, with their runs."""

    metrics: dict[str, Mapping[str, float]] = field(default_factory=dict)  # of every seed that has not failed
    runs: list[Run] = field(default_factory=list)  # in which they are
    failures: dict[str, Failure] = field(default_factory=dict)  # why others have
    # what those had come to the end of; see `pcl.studies.paper.published.settled`
    settled: dict[str, Mapping[str, float]] = field(default_factory=dict)

    def counted(self, n: int) -> str:
        """Return how many seeds a number has, and of how many where some failed or are undefined."""
        n_all = len({*self.metrics, *self.failures})
        is_lost = n < n_all and (n > 0 or bool(set(self.failures) - set(self.metrics)))
        return f"{n} of {n_all}" if is_lost else str(n)


def ours_of(row: paper.Row, trials: Sequence[Trial], seeds: Sequence[int]) -> dict[Setting, Found]:
    """Collect what trials that ended reached for a row on the report seeds.

    Of a seed counts the trial that has most of them, as for `pcl.studies.tracking.finished_trials`, and then the first.
    """
    found: dict[Setting, Found] = defaultdict(Found)
    asked = {str(seed) for seed in seeds}
    ended = [t for t in trials if t.run.status in (RunState.FINISHED, RunState.FAILED) and row.matches(t.run.params)]
    current = [trial for trial in ended if is_current(trial.run.tags)]
    for trial in sorted(current, key=lambda trial: -len(asked & set(_seeds_of(trial)))):
        params = trial.run.params
        lacks_weights = row.task == "images" and not row.is_from_scratch and not params.get("encoder.weights")
        into = found[Setting(params["profile"], params["scale"], params.get("task.data", "toy"), lacks_weights)]
        is_new = False
        for seed, run in _seeds_of(trial).items():
            if seed not in asked or seed in into.metrics:
                continue
            is_new = True
            if run.failure or trial.run.status is RunState.FAILED:
                into.failures[seed] = run.failure or trial.run.failure or Failure(FailureKind.ERROR)
                into.settled[seed] = paper.settled(run.metrics, into.failures[seed], params)
            else:
                into.metrics[seed] = run.metrics
                into.settled.pop(seed, None)
        if is_new:
            into.runs.append(trial.run)
    return {setting: content for setting, content in found.items() if content.runs}


def _seeds_of(trial: Trial) -> dict[str, Run]:
    return {run.tags.get(Tag.SEED, ""): run for run in trial.seeds or [trial.run]}


def _is_begun(row: paper.Row, trials: Sequence[Trial]) -> bool:
    return any(t.run.status not in (RunState.FINISHED, RunState.FAILED) and row.matches(t.run.params) for t in trials)


def scoreboard_page(trials: Sequence[Trial], seeds: Sequence[int], around: PageContext) -> str:
    """Return the page."""
    parts, states, whole = [], [], []  # of all rows, and of those that are as published
    for of_paper in paper.published_tables():
        rows = []
        for entry in of_paper.rows:
            found = ours_of(entry, trials, seeds)
            missing = "unfinished" if not found and _is_begun(entry, trials) else "not run"
            for setting, row in _rows(of_paper, entry, found, around, missing):
                rows.append(row)
                states.append(row.state)
                if setting is not None and not setting.mark and row.state not in _WITHOUT_NUMBER:
                    whole.append(row.state)
        name = of_paper.name.replace(":", "-")
        parts.append(
            section(
                of_paper.title,
                table(f"s-{name}", of_paper.name, _COLUMNS, rows, has_filter=False, kind="wide"),
                words=tag("code", of_paper.name),
                name=name,
            )
        )
    body: list[Child] = [tag("h1", "Scoreboard"), _words(), facts([
        ("numbers of ours", f"{sum(state not in _WITHOUT_NUMBER for state in states):,}"),
        ("of the published size and images", f"{len(whole):,}"), ("of these agree", f"{whole.count('agrees'):,}"),
        *((state, f"{states.count(state):,}") for state in _WITHOUT_NUMBER),
    ]), filter_all(_STATES), *parts, _others()]  # fmt: skip
    return page("Scoreboard", tag("div", body, id="live"), around, "scoreboard.html")


def _words() -> Html:
    return tag(
        "p",
        "The paper's tables and figures by their names in its source. Published: mean ± standard error over five "
        "seeds. Ours: finished runs of exactly that configuration on the report seeds, from whichever study. The "
        "difference is in combined standard errors, the published number's rounding included; up to two count as "
        "agreement, from three seeds on. Anything but the scale ", tag("b", "paper"), " is shorter than what was "
        "published and marked; so are other images, and training without pretrained weights. Seeds that failed are in "
        "no mean, but for mu where it was trained before kappa ran away.",
    )  # fmt: skip


def _others() -> Html:
    """Return the tables that have no results of runs."""
    shown = {of_paper.name for of_paper in paper.published_tables()}
    items = [
        tag("li", tag("code", name), f": {title}. ", tag("code", f"{command('reproduce')} --table {name[4:]}"))
        for name, title in paper.published_titles().items()
        if name not in shown
    ]
    words = (
        "These compare settings instead of results. Their commands write them, the paper's beside ours, and search the "
        "grids that MLflow does not have; --plan says what would run."
    )
    return section("Sizes and grids", tag("ul", items), words=words, name="sizes-and-grids")


def _rows(
    of_paper: paper.Table, row: paper.Row, found: Mapping[Setting, Found], around: PageContext, missing: str
) -> list[tuple[Setting | None, TableRow]]:
    """Return lines, each with the setting of ours, or with the state `missing`."""
    made: list[tuple[Setting | None, TableRow]] = []
    for metric, heading in of_paper.columns.items():
        published = row.published.get(metric)
        is_told = any(_is_told(row, metric, content) for content in found.values())
        if row.published and published is None and not is_told:
            continue  # a column of other rows
        shown = sorted(found.items(), key=lambda item: not _measured(item[1], metric).n)  # those with a number first
        made += [(setting, _line(row, metric, heading, setting, content, around)) for setting, content in shown]
        if not shown:
            printed = _printed(published, row, metric)
            cells = (row.name, heading, printed, MISSING, "", "", badge(missing), "", "", "", "")
            made.append((None, TableRow(cells, missing)))
    return made


def _is_told(row: paper.Row, metric: str, content: Found) -> bool:
    """Return whether there is something to say of a metric for which the paper prints no number."""
    has_value = any(metric in metrics for metrics in content.metrics.values())
    return has_value or row.expects(metric, content.failures.values())


def _line(row: paper.Row, metric: str, heading: str, setting: Setting, content: Found, around: PageContext) -> TableRow:
    """Return the line of what runs reached, or of why they failed or ended without this metric."""
    published, ours = row.published.get(metric), _measured(content, metric)
    reached: list[Cell | Child]  # value, seeds, difference, verdict
    if ours.n:
        result = paper.compare(metric, published, ours) if published else None
        verdict, difference = (result.verdict, result.difference) if result else ("", math.nan)
        state = verdict or "no verdict"
        judged = Cell(_marked(badge(verdict), setting), verdict) if verdict else None
        reached = [
            Cell(_marked(plus_minus(ours.mean, ours.error), setting), ours.mean),
            Cell(content.counted(ours.n), ours.n),
            Cell("" if math.isnan(difference) else paper.signed(difference).replace("-", MINUS), difference),
            judged or (paper.FEW_SEEDS.get(ours.n, "") if result else ""),
        ]
    else:
        cause, state = _why(metric, content)
        if state == "failed" and row.expects(metric, content.failures.values()):
            state = paper.AGREES
        told = _marked(tag("span", cause, class_="wrap"), setting)
        reached = [told, content.counted(0), "", Cell(_marked(badge(state), setting), state)]
    where = setting.fidelity, setting.scale, setting.data, _records(content, around)
    return TableRow((row.name, heading, _printed(published, row, metric), *reached, *where), state)


def _why(metric: str, content: Found) -> tuple[str, str]:
    """Why there is no number, and the state that this is."""
    causes = paper.told_failures(content.failures.values())
    if not content.metrics:
        return causes, "failed"
    recorded = [metrics[metric] for metrics in content.metrics.values() if metric in metrics]
    return causes or (number(mean_of(recorded)) if recorded else MISSING), "not measured"


def _marked(told: Child, setting: Setting) -> Html:
    return join(told, tag("span", f" {setting.mark}", class_="reduced") if setting.mark else None)


def _records(content: Found, around: PageContext) -> Html:
    return join(*(join(around.run_link(run), " ") for run in content.runs[:5]))


def _measured(content: Found, metric: str) -> paper.Measured:
    every = [*content.metrics.values(), *content.settled.values()]
    values = [m[metric] for m in every if math.isfinite(m.get(metric, math.nan))]
    found = estimate(values)
    return paper.Measured(found.mean, found.error, found.n)


def _printed(published: paper.Published | None, row: paper.Row, metric: str) -> Cell:
    if published is None:
        return Cell(tag("span", row.note_on(metric) or "not printed", class_="wrap"), math.nan)
    printed, _, where = published.text.replace("±", " ± ").partition(" (")
    return Cell([printed, tag("span", f" ({where}", class_="source")] if where else printed, published.mean)
