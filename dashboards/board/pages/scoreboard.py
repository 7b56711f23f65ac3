"""The scoreboard: the paper's tables and figures beside runs of this store and the results that ship with the code."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dashboards.board.html.frame import PageContext, badge, facts, page, section
from dashboards.board.html.names import BEST_CONSTANT
from dashboards.board.html.tables import Cell, Column, TableRow, filter_all, table
from dashboards.board.pages.paper_runs import Found, Setting, is_begun, is_told, measured, ours_of, why
from dashboards.board.store.records import Trial
from dashboards.paper.headline import changes, headline
from dashboards.paper.results import Asked, Origin, Result
from pcl.metrics.names import KAPPA_MAE, KAPPA_MEDIAN
from pcl.presentation.markup import Child, Html, join, tag
from pcl.presentation.numbers import MINUS, MISSING, number, plus_minus
from pcl.storage.installation import command
from pcl.studies.paper import published as paper
from pcl.studies.paper.comparison import DIVERGED, OF_CONSTANT, Line, split_mark
from pcl.studies.tracking.tags import NUMERICS, shown_commit

_COLUMNS = (
    Column("Row"), Column("Metric", words="By the paper's name; what it calls RMSE is a mean absolute error"),
    Column("Published", is_number=True), Column("Ours", is_number=True), Column("Seeds", is_number=True),
    Column("Difference", is_number=True, words="Ours less published, in combined standard errors"), Column("Verdict"),
    Column("From", words="The run in this store, or the results that ship with the code; fidelity, scale and data"),
)  # fmt: skip
_MISSING_COLUMNS = _COLUMNS[:3]


_STATES = (paper.AGREES, "better", "worse", "no verdict", "failed", "not measured", "unfinished")
_WITHOUT_NUMBER = _STATES[4:]


class Shipped(NamedTuple):
    """A line of the results that ship with the code."""

    line: Line
    asked: Asked  # what its table was trained with
    origin: Origin

    @property
    def state(self) -> str:
        """Return the verdict as one of the states of this page; results of earlier numerics have no verdict today."""
        verdict = split_mark(self.line.verdict)[0]
        if self.origin.is_older:
            return "no verdict"
        return verdict if verdict in _STATES else "failed" if verdict == DIVERGED else "no verdict"


# By table, row and the paper's name of the metric
Kept = Mapping[tuple[str, str, str], Sequence[Shipped]]


@dataclass
class Tally:
    """Counts of the page's lines."""

    states: list[str] = field(default_factory=list)  # states of this store's lines
    whole: list[str] = field(default_factory=list)  # the same for those with a number of the published size and images
    shipped: list[str] = field(default_factory=list)  # the same for the lines that ship with the code
    n_older: int = 0  # number of those of earlier numerics
    n_missing: int = 0  # published numbers that neither has
    headlines: Sequence[tuple[str, str]] = ()  # what ships with the code says of the paper as a whole, by settings

    def facts(self) -> Html:
        """Return the counts."""
        n_ours = sum(state not in _WITHOUT_NUMBER for state in self.states)
        n_shipped = sum(state not in _WITHOUT_NUMBER for state in self.shipped)
        older = f", {self.n_older:,} of earlier numerics" if self.n_older else ""
        return facts([
            *self.headlines,
            ("shipped with the code, repetitions included",
             f"{n_shipped:,} numbers, {self.shipped.count('agrees'):,} agree{older}" if self.shipped else None),
            ("of this store", f"{n_ours:,}"), ("of the published size and images", f"{len(self.whole):,}"),
            ("of these agree", f"{self.whole.count('agrees'):,}"),
            *((state, f"{self.states.count(state):,}") for state in _WITHOUT_NUMBER if state in self.states),
            ("not run", f"{self.n_missing:,}"),
        ])  # fmt: skip


def shipped_lines(results: Sequence[Result]) -> Kept:
    """Return the lines of results that ship with the code, by table, row and metric."""
    found: dict[tuple[str, str, str], list[Shipped]] = defaultdict(list)
    for result in results:
        for line, origin in zip(result.lines, result.origins, strict=True):
            found[result.table, line.row, line.what].append(Shipped(line, result.asked, origin))
    return found


def scoreboard_page(
    trials: Sequence[Trial], seeds: Sequence[int], around: PageContext, results: Sequence[Result] = ()
) -> str:
    """Return the page; `results` are those that ship with the code."""
    told = [("the paper", headline(results))] if results else []
    told += [(f"the paper, {changed}", headline(results, changed)) for changed in changes(results)]
    kept, tally = shipped_lines(results), Tally(headlines=told)
    parts = [_table(of_paper, trials, seeds, around, kept, tally) for of_paper in paper.published_tables()]
    body: list[Child] = [tag("h1", "Scoreboard"), _words(), tally.facts(), filter_all(_STATES), *parts, _others()]
    return page("Scoreboard", tag("div", body, id="live"), around, "scoreboard.html")


def _table(
    of_paper: paper.Table, trials: Sequence[Trial], seeds: Sequence[int], around: PageContext, kept: Kept, tally: Tally
) -> Html:
    rows, missing = [], []
    for entry in of_paper.rows:
        found = ours_of(entry, trials, seeds)
        is_unfinished = not found and is_begun(entry, trials)
        for metric, heading in of_paper.columns.items():
            published, shipped = entry.published.get(metric), kept.get((of_paper.name, entry.name, heading), ())
            is_known = any(is_told(entry, metric, content) for content in found.values())
            if entry.published and published is None and not is_known and not shipped:
                continue  # a column of other rows
            lines = _lines(entry, metric, heading, found, around)
            for setting, row in lines:
                tally.states.append(row.state)
                if not setting.mark and row.state not in _WITHOUT_NUMBER:
                    tally.whole.append(row.state)
            tally.shipped += [line.state for line in shipped if not line.asked.changed]
            tally.n_older += sum(line.origin.is_older for line in shipped if not line.asked.changed)
            constants = {s.asked: s.line.ours for s in kept.get((of_paper.name, entry.name, heading + OF_CONSTANT), ())}
            rows += [row for _, row in lines]
            rows += [_shipped(entry, metric, heading, line, constants.get(line.asked, "")) for line in shipped]
            cells: tuple[Cell | Child, ...] = (entry.name, heading, _printed(published, entry, metric))
            if is_unfinished:
                rows.append(TableRow((*cells, MISSING, "", "", badge("unfinished"), "this store"), "unfinished"))
                tally.states.append("unfinished")
            elif not lines and all(line.asked.changed for line in shipped):
                missing.append(TableRow(cells))
    tally.n_missing += len(missing)
    name = of_paper.name.replace(":", "-")
    shown = table(f"s-{name}", of_paper.name, _COLUMNS, rows, has_filter=False, kind="wide") if rows else None
    return section(
        of_paper.title, shown, _missing(of_paper, missing) if missing else None, words=tag("code", of_paper.name),
        name=name,
    )  # fmt: skip


def _missing(of_paper: paper.Table, rows: Sequence[TableRow]) -> Html:
    """Return the published numbers that have no run, and the command that runs them."""
    kind, _, name = of_paper.name.partition(":")
    asked = f"{command('reproduce')} --{'table' if kind == 'tab' else 'figure'} {name}"
    count = f"{len(rows):,} {'number has' if len(rows) == 1 else 'numbers have'} no run yet: "
    numbers = table(f"m-{kind}-{name}", f"{of_paper.name}, not run", _MISSING_COLUMNS, rows, has_filter=False)
    return tag("details", tag("summary", count, tag("code", asked)), numbers, class_="missing")


def _words() -> Html:
    return tag(
        "p",
        "The paper's tables and figures by their names in its source. Published: mean ± standard error over five "
        "seeds. Ours: finished runs of exactly that configuration on the report seeds, from any study of this "
        "store, and the results that ship with the code. The difference is in combined standard errors, the published "
        "number's rounding included; up to two count as agreement, from three seeds on. Results at any scale but ",
        tag("b", "paper"), " are of shorter runs than published ones and marked; so are other images, and training "
        "without pretrained weights. Seeds that failed are in no mean, except for mu where it was trained before kappa "
        "ran away.",
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
        "These compare settings instead of results. Their commands write the paper's settings next to ours, and search "
        "the grids that MLflow does not have; --plan shows what would run."
    )
    return section("Sizes and grids", tag("ul", items), words=words, name="sizes-and-grids")


def _lines(
    row: paper.Row, metric: str, heading: str, found: Mapping[Setting, Found], around: PageContext
) -> list[tuple[Setting, TableRow]]:
    """Return this store's lines of a number, each with its setting, those with a value first."""
    shown = sorted(found.items(), key=lambda item: not measured(item[1], metric).n)
    return [(setting, _line(row, metric, heading, setting, content, around)) for setting, content in shown]


def _shipped(row: paper.Row, metric: str, heading: str, shipped: Shipped, constant: str) -> TableRow:
    """Return a line of the results that ship with the code; `constant` is the best constant kappa's, if it is kept."""
    line, asked, origin = shipped
    told, mark = split_mark(line.ours)
    verdict, difference = split_mark(line.verdict)[0], split_mark(line.difference)[0]
    mark = mark or (f" [numerics {origin.numerics}, now {NUMERICS}]" if origin.is_older else "")
    reduced = tag("span", mark.strip(" []"), class_="reduced") if mark else None
    yardstick = tag("small", f"{BEST_CONSTANT}: {split_mark(constant)[0]}") if constant else None
    ours = join(tag("span", told.replace("±", " ± "), class_="wrap"), yardstick, " " if mark else None, reduced)
    within = f" within {line.detectable}" if verdict == paper.AGREES and line.detectable else ""
    told_verdict = f"{verdict}, then" if origin.is_older else verdict
    where = f"{origin.hardware}, torch {origin.torch}, commit {shown_commit(origin.commit)}, {origin.date}"
    changed = f" · {asked.changed}" if asked.changed else ""
    from_ = join("shipped", tag("small", f"{asked.fidelity} · {asked.scale} · {asked.data}{changed}"))
    cells = (
        row.name, heading, _printed(row.published.get(metric), row, metric), Cell(ours, _mean(told)),
        line.seeds, Cell(_plain(difference), _number(difference)),
        Cell(join(badge(told_verdict, shipped.state), tag("small", within)), verdict),
        Cell(tag("span", from_, title=where), "shipped"),
    )  # fmt: skip
    return TableRow(cells, shipped.state)


def _mean(told: str) -> float:
    """Return the number that a cell such as `0.82±0.04` begins with."""
    return _number(told.partition("±")[0])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _plain(difference: str) -> str:
    return "" if math.isnan(_number(difference)) else difference.replace("-", MINUS)


def _line(row: paper.Row, metric: str, heading: str, setting: Setting, content: Found, around: PageContext) -> TableRow:
    """Return the line of what runs reached, or of why they failed or ended without this metric."""
    published, ours = row.published.get(metric), measured(content, metric)
    reached: list[Cell | Child]  # value, seeds, difference, verdict
    if ours.n:
        result = paper.compare(metric, published, ours) if published else None
        verdict, difference = (result.verdict, result.difference) if result else ("", math.nan)
        state = verdict or "no verdict"
        within = f" within {result.detectable:.2g}" if result and verdict == paper.AGREES else ""
        judged = Cell(_marked(join(badge(verdict), tag("small", within)), setting), verdict) if verdict else None
        told = join(plus_minus(ours.mean, ours.error), _constant(row, metric, setting, content))
        reached = [
            Cell(_marked(told, setting), ours.mean),
            Cell(content.counted(ours.n), ours.n),
            Cell("" if math.isnan(difference) else paper.signed(difference).replace("-", MINUS), difference),
            judged or (paper.FEW_SEEDS.get(ours.n, "") if result else ""),
        ]
    else:
        cause, state = why(metric, content)
        if row.expects(metric, content.failures.values(), measured(content, KAPPA_MEDIAN).mean):
            state = paper.AGREES
        judged = Cell(_marked(badge(state), setting), state)
        reached = [_marked(tag("span", cause, class_="wrap"), setting), content.counted(0), "", judged]
    about = tag("small", f"{setting.fidelity} · {setting.scale} · {setting.data}")
    from_ = Cell(join(_records(content, around), about), "this store")
    return TableRow((row.name, heading, _printed(published, row, metric), *reached, from_), state)


def _constant(row: paper.Row, metric: str, setting: Setting, content: Found) -> Html | None:
    """Return the error of the best constant kappa on the seeds of kappa's own error."""
    if metric != KAPPA_MAE:
        return None
    constant = row.constant_kappa_mae(setting.fidelity, setting.scale, [int(seed) for seed in content.metrics])
    return None if constant is None else tag("small", f"{BEST_CONSTANT}: {number(constant)}")


def _marked(told: Child, setting: Setting) -> Html:
    return join(told, tag("span", f" {setting.mark}", class_="reduced") if setting.mark else None)


def _records(content: Found, around: PageContext) -> Html:
    return join(*(join(around.run_link(run), " ") for run in content.runs[:5]))


def _printed(published: paper.Published | None, row: paper.Row, metric: str) -> Cell:
    if published is None:
        return Cell(tag("span", row.note_on(metric) or "not printed", class_="wrap"), math.nan)
    printed, _, where = published.text.replace("±", " ± ").partition(" (")
    return Cell([printed, tag("span", f" ({where}", class_="source")] if where else printed, published.mean)
