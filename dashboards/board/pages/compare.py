"""The page that compares up to 26 runs, which `static/compare.js` fills, and its data."""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from dashboards.board.html.frame import PageContext, page
from dashboards.board.html.names import shown_metrics
from dashboards.board.store.records import Run, Study, differing
from pcl.metrics.names import metric_name, metric_range
from pcl.presentation.markup import tag
from pcl.studies.tracking.page_links import run_page
from pcl.studies.tracking.tags import Tag

Histories = Mapping[str, Sequence[tuple[int, float]]]  # steps and values, by run

_MOST_POINTS = 60  # of a curve


def compare_page(studies: Sequence[Study], around: PageContext) -> str:
    """Return the page with a choice of studies; the script loads a study's trials when it is chosen."""
    options = [tag("option", study.run.name, value=study.run.id) for study in studies]
    sides = [
        tag("fieldset", tag("legend", f"Run {letter}"),
            tag("label", "Study ", tag("select", options, id=f"study-{letter}")),
            tag("label", "Trial ", tag("select", id=f"trial-{letter}")),
            tag("p", id=f"about-{letter}", class_="note"), data_side=letter, class_=f"run{place}")
        for place, letter in enumerate("AB")
    ]  # fmt: skip
    body = [
        tag("h1", "Compare runs"),
        tag("noscript", tag("p", "This page needs scripts: it computes the differences in the browser.")),
        tag("div", sides, class_="sides"),
        tag("p", tag("button", "Add a run", type="button", id="add"), " ",
            tag("button", "Remove the last", type="button", id="remove"), " ",
            tag("button", "Swap A and B", type="button", id="exchange"), " ",
            tag("label", tag("input", type="checkbox", id="same"), " also show what is equal")),
        tag("p", id="left-out", class_="note"), tag("p", id="told", role="status", class_="note"),
        tag("div", id="differences"), tag("div", id="curves"),
    ] if studies else [tag("h1", "Compare runs"), tag("p", "There is no study yet.", class_="empty")]  # fmt: skip
    content = tag("div", body, id="compare", data_run=around.in_mlflow(run_page("EXPERIMENT", "RUN")) or None)
    return page("Compare", content, around, "compare.html", scripts=["curves.js", "compare.js"])


def study_data(study: Study) -> str:
    """Return a study's runs as a script, which a page from disk can load too; shared settings are listed once."""
    runs = [trial.run for trial in study.trials]
    apart = differing([run.params for run in runs])
    shared = {path: value for path, value in runs[0].params.items() if path not in apart} if runs else {}
    metrics = sorted({metric for run in runs for metric in run.metrics})
    content = {
        "experiment": study.run.experiment,
        "shared": shared,
        "names": {metric: metric_name(metric) for metric in metrics},
        "bounded": [metric for metric in metrics if math.isfinite(metric_range(metric)[1])],
        "runs": {
            run.id: {
                "name": run.name,
                "status": run.status,
                "stage": run.tags.get(Tag.STAGE, ""),
                "cause": run.cause,
                "params": {path: value for path, value in run.params.items() if path not in shared},
                "metrics": {metric: _plain(value) for metric, value in run.metrics.items()},
            }
            for run in runs
        },
    }
    return f"board.take({json.dumps(study.run.id)}, {json.dumps(content, sort_keys=True)});\n"


def curves_data(study: Study, read: Callable[[Iterable[Run], str], Histories], n_most: int) -> str:
    """Return the histories of a study's main metrics as a script; `read` returns the histories of some runs.

    Only the `n_most` best trials are included, and long histories are thinned without changing the curve's look.
    """
    trials = study.cells if study.is_reproduction else study.ranked
    runs = [trial.run for trial in [*trials, *study.replicates, *study.reports][:n_most]]
    content = {}
    for metric in shown_metrics(study.objective, study.trials):
        found = read(runs, metric)
        content[metric] = {run: _thinned(points) for run, points in sorted(found.items())}
    return f"board.takeCurves({json.dumps(study.run.id)}, {json.dumps(content)});\n"


def _thinned(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    every = math.ceil(len(points) / _MOST_POINTS)
    kept = [*points[::every], *([points[-1]] if (len(points) - 1) % every else [])]
    return [(step, float(f"{value:.5g}")) for step, value in kept]


def _plain(value: float) -> float | str:
    """Return NaN and infinities, which JSON lacks, as text."""
    return value if math.isfinite(value) else str(value)
