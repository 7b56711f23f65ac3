"""The paper's tables and figures: published beside ours, of which every number is of runs in MLflow."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dashboards.board.frame import Surroundings, badge, facts, page, section
from dashboards.board.markup import MINUS, MISSING, Child, Html, join, plus_minus, tag
from dashboards.board.pairing import estimate
from dashboards.board.records import FINISHED, Run, Trial
from dashboards.board.tables import Cell, Column, TableRow, filter_all, table
from dashboards.scoreboard import Measured, Published, Row, Table, compare, published_tables

_COLUMNS = (
    Column("Row"), Column("Metric", words="By the paper's name; what it calls RMSE is a mean absolute error"),
    Column("Published", is_number=True), Column("Ours", is_number=True), Column("Seeds", is_number=True),
    Column("Difference", is_number=True, words="Ours less published, in combined standard errors"), Column("Verdict"),
    Column("Fidelity"), Column("Scale"), Column("Data"), Column("Record"),
)  # fmt: skip


_STATES = ("agrees", "better", "worse", "no verdict", "not run")


@dataclass(frozen=True)
class Setting:
    """What results of one row may differ in."""

    fidelity: str
    scale: str
    data: str


@dataclass
class Found:
    """Seeds of a row in one setting, each with the run that it is of."""

    metrics: dict[str, Mapping[str, float]]
    runs: list[Run]


def ours_of(row: Row, trials: Sequence[Trial], seeds: Sequence[int]) -> dict[Setting, Found]:
    """What finished trials have of a row on the seeds that results are reported on; of a seed, the first."""
    found: dict[Setting, Found] = defaultdict(lambda: Found({}, []))
    for trial in trials:
        params = trial.run.params
        if trial.run.status != FINISHED or not row.matches(params):
            continue
        into = found[Setting(params["profile"], params["scale"], params.get("task.data", "toy"))]
        of_seeds = [run for run in (trial.seeds or [trial.run]) if not run.cause]
        new = {
            run.tags["pcl.seed"]: run.metrics
            for run in of_seeds
            if run.tags.get("pcl.seed", "") in {str(seed) for seed in seeds} - set(into.metrics)
        }
        if new:
            into.metrics.update(new)
            into.runs.append(trial.run)
    return {setting: content for setting, content in found.items() if content.metrics}


def scoreboard_page(trials: Sequence[Trial], seeds: Sequence[int], around: Surroundings) -> str:
    """The page."""
    parts, counts = [], [0, 0, 0]
    for of_paper in published_tables():
        rows = [row for entry in of_paper.rows for row in _rows(of_paper, entry, ours_of(entry, trials, seeds), around)]
        for row in rows:
            counts[0] += row.state != "not run"
            counts[1] += row.state == "agrees"
            counts[2] += row.state == "not run"
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
        ("numbers of ours", f"{counts[0]:,}"), ("agree with the published", f"{counts[1]:,}"),
        ("not run", f"{counts[2]:,}"),
    ]), filter_all(_STATES), *parts]  # fmt: skip
    return page("Scoreboard", tag("div", body, id="live"), around, "scoreboard.html")


def _words() -> Html:
    return tag(
        "p",
        "The paper's tables and figures by their names in its source. Published: mean ± standard error over five "
        "seeds. Ours: finished runs of exactly that configuration on the report seeds, from whichever study. The "
        "difference is in combined standard errors, the published number's rounding included; up to two count as "
        "agreement. Anything but the scale ", tag("b", "paper"), " is shorter than what was published, and is marked.",
    )  # fmt: skip


def _rows(of_paper: Table, row: Row, found: Mapping[Setting, Found], around: Surroundings) -> list[TableRow]:
    made = []
    for metric, heading in of_paper.columns.items():
        published = row.published.get(metric)
        if (
            row.published
            and published is None
            and not any(metric in m for f in found.values() for m in f.metrics.values())
        ):
            continue  # a column of other rows
        shown = [(setting, content, _measured(content, metric)) for setting, content in found.items()]
        shown = [entry for entry in shown if entry[2].n]
        made += [_line(row, metric, heading, published, s, c, m, around) for s, c, m in shown]
        if not shown:
            cells = (row.name, heading, _printed(published, row), MISSING, "", "", badge("not run"), "", "", "", "")
            made.append(TableRow(cells, "not run"))
    return made


def _line(
    row: Row, metric: str, heading: str, published: Published | None, setting: Setting, content: Found, ours: Measured,
    around: Surroundings,
) -> TableRow:  # fmt: skip
    result = compare(metric, published, ours) if published else None
    verdict = result.verdict if result else ""
    mean = plus_minus(ours.mean, ours.error)
    told = mean if setting.scale == "paper" else join(mean, tag("span", f" {setting.scale}", class_="reduced"))
    difference = result.difference if result else math.nan
    records = join(*(join(around.run_link(run), " ") for run in content.runs[:5]))
    cells = (
        row.name, heading, _printed(published, row), Cell(told, ours.mean), ours.n,
        Cell("" if math.isnan(difference) else f"{difference:+.1f}".replace("-", MINUS), difference),
        badge(verdict) if verdict else "", setting.fidelity, setting.scale, setting.data, records,
    )  # fmt: skip
    return TableRow(cells, verdict or "no verdict")


def _measured(content: Found, metric: str) -> Measured:
    values = [m[metric] for m in content.metrics.values() if math.isfinite(m.get(metric, math.nan))]
    found = estimate(values)
    return Measured(found.mean, found.error, found.n)


def _printed(published: Published | None, row: Row) -> Cell:
    if published is None:
        return Cell(row.note or "not printed", math.nan)
    return Cell(published.text.replace("±", " ± "), published.mean)
