"""The first page: all studies, their winners and what they took."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from dashboards.board.charts.curves import sparkline
from dashboards.board.html.frame import PageContext, badge, facts, page, state_of, state_of_study
from dashboards.board.html.tables import Cell, Column, TableRow, table
from dashboards.board.store.artifacts import Figure
from dashboards.board.store.records import Study, Trial
from pcl.metrics.names import larger_is_better, metric_name
from pcl.presentation.durations import moment, rounded_duration
from pcl.presentation.markup import Child, Html, join, tag
from pcl.presentation.numbers import MISSING, plus_minus
from pcl.storage.installation import command
from pcl.studies.results.parameter_effects import best_so_far
from pcl.studies.tracking.tags import Tag

_STATES = ("finished", "failed", "running", "stopped")
_COLUMNS = (
    Column("Study"), Column("State"), Column("Trials", is_number=True, words="Number of trials, and their states"),
    Column("Best", is_number=True, words="Mean of the objective over the winner's tuning seeds, ± standard error"),
    Column("So far", words="The best so far, from the first trial to the last"), Column("Winner"),
    Column("Figure", where="wide"),
    Column("Trial time", is_number=True, where="wide",
           words="Spent training on GPUs, and on CPUs: the sum over trials, also of those that share a device"),
    Column("Began (UTC)", where="wide"), Column("Record", where="wide"),
)  # fmt: skip


def overview_page(
    studies: Sequence[Study], around: PageContext, thumbnails: Mapping[str, Figure] = MappingProxyType({})
) -> str:
    """Return the page; `thumbnails` has a figure of some studies, by their run."""
    body: list[Child] = [tag("h1", "Studies")]
    if studies:
        body += [_totals(studies), table("studies", "Studies", _COLUMNS, [
            _row(study, around, thumbnails.get(study.run.id)) for study in studies
        ])]  # fmt: skip
    else:
        first = tag("code", f"{command('grid')} --space toy_mcinfonce --scale quick")
        body.append(tag("p", "No study is recorded yet. ", first, " runs one, which appears here.", class_="empty"))
    is_moving = any(state_of_study(study, around.now_ms) == "running" for study in studies)
    return page("Studies", tag("div", body, id="live"), around, "index.html", is_moving=is_moving)


def _totals(studies: Sequence[Study]) -> Child:
    every = [trial for study in studies for trial in study.trials]
    trials = [trial for trial in every if not trial.is_reused]
    n_reused = len(every) - len(trials)
    return facts([
        ("studies", f"{len(studies):,}"), ("trials", f"{len(trials):,}"), ("of them", _counts(trials)),
        ("reused", f"{n_reused:,}" if n_reused else None),
        ("trial time on GPUs", rounded_duration(sum(study.seconds(of_gpu=True) for study in studies))),
        ("trial time on CPUs", rounded_duration(sum(study.seconds(of_gpu=False) for study in studies))),
    ])  # fmt: skip


def _counts(trials: Sequence[Trial]) -> str:
    states = Counter(state_of(trial.run) for trial in trials)
    return ", ".join(f"{states[state]:,} {state}" for state in _STATES if states[state])


def _row(study: Study, around: PageContext, figure: Figure | None) -> TableRow:
    run, winner, tags = study.run, study.winner, study.run.tags
    state = state_of_study(study, around.now_ms)
    gpu, cpu = study.seconds(of_gpu=True), study.seconds(of_gpu=False)
    about = [f"ablation {tags[Tag.ABLATION]}" if tags.get(Tag.ABLATION) else tags.get(Tag.SPACE)]
    about += [tags.get(Tag.SCALE), tags.get(Tag.FIDELITY)]
    link = tag("a", run.name, href=f"study-{run.id}.html", class_="wrap")
    name = join(link, tag("small", " · ".join(word for word in about if word)))
    best = (
        join(plus_minus(winner.objective, winner.error), tag("small", metric_name(study.objective)))
        if winner
        else MISSING
    )
    return TableRow(
        (
            Cell(name, run.name), badge(state),
            Cell(_trials(study), len(study.trials)),
            Cell(best, winner.objective if winner else math.nan),
            _history(study),
            _winner(study, winner),
            _thumbnail(study, figure),
            Cell(join(rounded_duration(gpu), tag("small", f"CPU {rounded_duration(cpu)}") if cpu else None), gpu),
            Cell(moment(run.start_ms), run.start_ms),
            around.run_link(run),
        ),
        state,
    )  # fmt: skip


def _trials(study: Study) -> Html:
    n_reused = sum(trial.is_reused for trial in study.trials)
    reused = tag("small", f"{n_reused:,} reused") if n_reused else None
    return join(f"{len(study.trials):,}", _bar(study.trials), tag("small", _counts(study.trials)), reused)


def _bar(trials: Sequence[Trial]) -> Html | None:
    """Return the shares of the states in a bar."""
    states, at, parts = Counter(state_of(trial.run) for trial in trials), 0.0, []
    for state in _STATES:
        width = round(100 * states[state] / len(trials), 2) if trials else 0.0
        if width:
            parts.append(tag("rect", class_=f"s-{state}", x=round(at, 2), width=width, height=6))
        at += width
    return tag("svg", parts, class_="states", viewBox="0 0 100 6", preserveAspectRatio="none", role="img",
               aria_label=_counts(trials)) if parts else None  # fmt: skip


def _history(study: Study) -> Html | None:
    """Return the best so far as a line."""
    if study.is_reproduction:
        return None
    values = [trial.objective if trial.has_rank else math.nan for trial in study.searched]
    best = best_so_far(values, is_larger_better=larger_is_better(study.objective) is not False)
    return sparkline(best, f"The best so far over {len(best)} trials")


def _thumbnail(study: Study, figure: Figure | None) -> Html | None:
    if figure is None:
        return None
    picture = tag("img", src=figure.address, alt=f"Figure of {study.run.name}", class_="thumb", loading="lazy")
    return tag("a", picture, href=f"winner-{study.run.id}.html")


def _winner(study: Study, winner: Trial | None) -> Html | None:
    if study.is_reproduction:
        return tag("a", "on the scoreboard", href="scoreboard.html")
    if winner is None:
        return None
    link = tag("a", winner.run.name, href=f"winner-{study.run.id}.html", class_="wrap")
    return join(link, None if study.selects else tag("small", "the best; nothing is chosen"))
