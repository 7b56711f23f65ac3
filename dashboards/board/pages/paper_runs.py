"""Rows of the paper's tables and the runs of a store that belong to them."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dashboards.board.store.records import Run, Trial
from pcl.metrics.names import KAPPA_MEDIAN
from pcl.metrics.undefined import mean_of
from pcl.presentation.numbers import MISSING, number
from pcl.studies.paper import published as paper
from pcl.studies.paper.comparison import mark_of
from pcl.studies.results.statistics import estimate
from pcl.studies.tracking.tags import Failure, FailureKind, RunState, Tag, is_current


@dataclass(frozen=True)
class Setting:
    """The setting of results, in which those of one row may differ."""

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
    failures: dict[str, Failure] = field(default_factory=dict)  # why other seeds have
    # metrics that were final before the failure; see `pcl.studies.paper.published.settled`
    settled: dict[str, Mapping[str, float]] = field(default_factory=dict)

    def counted(self, n: int) -> str:
        """Return how many seeds a number has, and of how many where some failed or are undefined."""
        n_all = len({*self.metrics, *self.failures})
        is_lost = n < n_all and (n > 0 or bool(set(self.failures) - set(self.metrics)))
        return f"{n} of {n_all}" if is_lost else str(n)


def ours_of(row: paper.Row, trials: Sequence[Trial], seeds: Sequence[int]) -> dict[Setting, Found]:
    """Collect what trials that ended reached for a row on the report seeds.

    If several trials have a seed, the one with most of the seeds counts, then the first, as for
    `pcl.studies.tracking.finished_trials`.
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


def is_begun(row: paper.Row, trials: Sequence[Trial]) -> bool:
    """Return whether a trial of a row has begun and not ended."""
    return any(t.run.status not in (RunState.FINISHED, RunState.FAILED) and row.matches(t.run.params) for t in trials)


def is_told(row: paper.Row, metric: str, content: Found) -> bool:
    """Return whether there is something to say of a metric for which the paper prints no number."""
    has_value = any(metric in metrics for metrics in content.metrics.values())
    return has_value or row.expects(metric, content.failures.values(), measured(content, KAPPA_MEDIAN).mean)


def why(metric: str, content: Found) -> tuple[str, str]:
    """Return why there is no number, and the state of its line."""
    causes = paper.told_failures(content.failures.values())
    if not content.metrics:
        return causes, "failed"
    recorded = [metrics[metric] for metrics in content.metrics.values() if metric in metrics]
    if not recorded and metric.startswith("eval/kappa_") and (median := measured(content, KAPPA_MEDIAN)).n:
        return f"median κ {number(median.mean)}", "not measured"
    return causes or (number(mean_of(recorded)) if recorded else MISSING), "not measured"


def measured(content: Found, metric: str) -> paper.Measured:
    """Return the mean over the seeds that have a finite value."""
    every = [*content.metrics.values(), *content.settled.values()]
    values = [m[metric] for m in every if math.isfinite(m.get(metric, math.nan))]
    found = estimate(values)
    return paper.Measured(found.mean, found.error, found.n)
