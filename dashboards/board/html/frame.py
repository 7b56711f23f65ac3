"""The frame of all pages: head, navigation, states of runs, links to MLflow."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.store.records import Run, Study
from pcl.presentation.markup import Child, Html, document, join, tag
from pcl.studies.tracking.page_links import experiments_page, model_page, run_page, trials_page
from pcl.studies.tracking.tags import RunState, Tag

# Files from disk have no origin of their own that a policy could name, hence `file:`.
POLICY = (
    "default-src 'none'; script-src {0}; style-src {0}; img-src {0}; connect-src {0}; form-action {0}; base-uri 'none'"
)
STATES = {RunState.RUNNING: "running", RunState.FINISHED: "finished", RunState.FAILED: "failed"}
_SILENT_MS = 15 * 60_000  # without a report, a study that says it is running may have been killed


@dataclass(frozen=True)
class PageContext:
    """The context of a page: links to other services, and whether it is live."""

    mlflow: str = ""  # address of MLflow's pages; empty where there are none
    ray: str = ""  # address of Ray's dashboard; empty where there is none
    is_live: bool = True  # whether it is served, rather than a file on disk
    now_ms: int = 0  # when it is made
    reading: str = ""  # how much has been read, until all has

    def in_mlflow(self, page: str) -> str:
        """Return the address of a page of `pcl.studies.tracking.page_links`; empty without an MLflow."""
        return f"{self.mlflow.rstrip('/')}/{page}" if self.mlflow else ""

    def run_link(self, run: Run) -> Html:
        """Return a link to a run in MLflow, or the run's identifier without an MLflow."""
        if not self.mlflow:
            return tag("code", run.id[:8], class_="id", title=run.id)
        address = self.in_mlflow(run_page(run.experiment, run.id))
        return tag("a", "MLflow", href=address, class_="out", aria_label=f"Run {run.id[:8]} in MLflow")

    def model_link(self, model: str) -> Html:
        """Return a link to NAME/VERSION in MLflow's registry, or that alone without an MLflow."""
        name, _, version = model.rpartition("/")
        told = f"{name}, version {version}"
        if not self.mlflow:
            return tag("span", told)
        return tag("a", told, href=self.in_mlflow(model_page(name, version)), class_="out")

    def trials_link(self, study: Study) -> Html | None:
        """Return a link to a study's trials in MLflow."""
        if not self.mlflow:
            return None
        name = study.run.tags.get(Tag.STUDY, study.run.name)
        address = self.in_mlflow(trials_page(study.run.experiment, name, study.objective))
        return tag("a", "All trials in MLflow", href=address, class_="out")


def page(
    title: str,
    body: Child,
    around: PageContext,
    current: str = "",
    *,
    is_moving: bool = False,
    scripts: Sequence[str] = (),
) -> str:
    """Return a whole page: `current` is its entry in the navigation, and `is_moving` says that it will change soon."""
    source = "'self'" if around.is_live else "file: 'self'"
    entries = [("index.html", "Overview"), ("scoreboard.html", "Scoreboard"), ("compare.html", "Compare")]
    links = [tag("a", text, href=href, aria_current="page" if href == current else None) for href, text in entries]
    outside = [("MLflow", around.in_mlflow(experiments_page())), ("Ray", around.ray)]
    links += [tag("a", text, href=address, class_="out") for text, address in outside if address]
    if around.reading:
        links.append(tag("span", f"still reading: {around.reading} so far", role="status"))
    head = [
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY.format(source)),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="icon.svg", type="image/svg+xml"),
        tag("link", rel="stylesheet", href="board.css"),
        [tag("script", src=name, defer=True) for name in ("board.js", *scripts)],
    ]
    every = None if not around.is_live else 2 if is_moving or around.reading else 10
    content = [
        tag("a", "Skip to the content", class_="skip", href="#main"),
        tag("header", tag("a", "pcl", tag("span", " board"), class_="brand", href="index.html"),
            tag("nav", links, aria_label="Pages"),
            tag("span", id="news", class_="news") if every else None),
        tag("main", body, id="main", tabindex="-1"),
    ]  # fmt: skip
    mark = hashlib.sha256(join(content).encode()).hexdigest()[:16] if every else None
    return document(f"{title} · pcl board", content, head, data_every=every, data_mark=mark)


def page_of_study(study: Study, current: str, title: str, heading: Child, body: Child, around: PageContext) -> str:
    """Return one of a study's pages: below its heading the links between them, and then its body."""
    content = tag("div", tag("h1", heading), study_tabs(study, current), body, id="live", data_study=study.run.id)
    is_moving = state_of_study(study, around.now_ms) == "running"
    return page(title, content, around, is_moving=is_moving, scripts=["charts.js"])


def state_of(run: Run) -> str:
    """Return a run's state in the board's words."""
    return STATES.get(run.status, "stopped")


def state_of_study(study: Study, now_ms: int) -> str:
    """Return a study's state; one that has not reported for long is silent, as its driver may have been killed."""
    return "silent" if study.is_running and now_ms - study.last_ms > _SILENT_MS else state_of(study.run)


def badge(text: str, state: str = "") -> Html:
    """Return a state as a badge, or another text with the badge of a state."""
    return tag("span", text, class_=f"state {state or text}")


def facts(pairs: Sequence[tuple[str, Child]]) -> Html:
    """Return names and values in a row."""
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs if value], class_="facts")


def section(title: str, *content: Child, words: Child = None, name: str = "") -> Html:
    """Return a part of a page with a heading."""
    return tag("section", tag("h2", title), tag("p", words) if words else None, *content, id=name or None)


def study_tabs(study: Study, current: str) -> Html:
    """Return the links between a study's pages."""
    pages = [
        ("study", "Trials"),
        ("parameters", "Parameters"),
        ("ablation", "Paired differences"),
        ("winner", "Winner"),
    ]
    links = [
        tag("a", text, href=f"{name}-{study.run.id}.html", aria_current="page" if name == current else None)
        for name, text in (pages[:1] if study.is_reproduction else pages)
    ]
    links += [tag("a", "Scoreboard", href="scoreboard.html")] if study.is_reproduction else []
    return tag("nav", links, class_="tabs", aria_label=f"Pages of {study.run.name}")


def cells_words() -> Html:
    """Return why a reproduction is neither ranked nor paired, and where its results are."""
    return join("Cells of the paper's tables and figures are not variants of each other. The ",
                tag("a", "scoreboard", href="scoreboard.html"), " compares each with the paper's number.")  # fmt: skip


def note(*content: Child) -> Html:
    """Return a remark."""
    return tag("p", join(*content), class_="note")
