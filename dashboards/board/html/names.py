"""Names of metrics and axes for people, and what trials varied."""

import re
from collections.abc import Sequence

from dashboards.board.store.records import Study, Trial, varied_params
from pcl.metrics.names import CONSTANT_KAPPA_MAE, KAPPA_MAE, MAIN_METRICS
from pcl.studies.space.labels import shown
from pcl.studies.tracking.tags import Tag, varied_of

_MOST_TELLING = 3  # columns: with more, the results are off the screen
BEST_CONSTANT = "best constant κ"
_CELL = "cell"  # axis of the trials of a reproduction
_VALUE = re.compile(r"(\w+)=(.*?)(?=\s\w+=|$)")


def shown_metrics(objective: str, trials: Sequence[Trial]) -> list[str]:
    """Return the objective and the main metrics that the trials have."""
    recorded = {metric for trial in trials for metric in trial.run.metrics}
    return [objective, *(metric for metric in MAIN_METRICS if metric in recorded and metric != objective)]


def recorded_constant_kappa_mae(study: Study, metric: str) -> float | None:
    """Return what the best constant kappa has of a metric; None unless it is kappa's error and was recorded."""
    return study.run.metrics.get(CONSTANT_KAPPA_MAE) if metric == KAPPA_MAE else None


def cell_name(trial: Trial) -> str:
    """Return the cell of the paper that a trial of a reproduction is of, or the point of a grid."""
    return varied(trial).get(_CELL, trial.run.name)


def varied(trial: Trial) -> dict[str, str]:
    """Return what a trial varied: displayed values by the last part of each axis, or by all of it if two share that.

    Runs that do not record it have it in their names.
    """
    recorded = varied_of(trial.run.tags)
    if recorded is None:
        return _varied_by_name(trial.run.name)
    return dict(zip(short_names(list(recorded)), map(shown, recorded.values()), strict=True))


def short_names(axes: Sequence[str]) -> list[str]:
    """Return the last parts of the axes' paths, or the whole path where two share that."""
    ends = [axis.rpartition(".")[2] for axis in axes]
    return [end if ends.count(end) == 1 else axis for axis, end in zip(axes, ends, strict=True)]


def _varied_by_name(name: str) -> dict[str, str]:
    """Parse `AXIS=VALUE AXIS=VALUE`: the fallback for runs without a tag for what they varied."""
    if name.startswith(f"{_CELL}="):  # its value may be any text
        return {_CELL: name.removeprefix(f"{_CELL}=")}
    return dict(_VALUE.findall(name))


def telling_apart(trials: Sequence[Trial]) -> list[tuple[str, list[str]]]:
    """Return a few settings that tell apart trials of one name, as several grids have them; see `axes_of`."""
    every = [path for group in varied_params(trials) for path in group]
    paths = sorted(every, key=lambda path: (sum(path not in t.run.params for t in trials), "." in path, path))
    told: list[tuple[str, ...]] = [(trial.stage, trial.run.name) for trial in trials]
    found: list[tuple[str, list[str]]] = []
    while paths and len(found) < _MOST_TELLING:
        axes = [(path, [trial.run.params.get(path, "") for trial in trials]) for path in paths]
        axis, values = max(axes, key=lambda axis: len(set(zip(told, axis[1], strict=True))))
        further = [(*words, value) for words, value in zip(told, values, strict=True)]
        if len(set(further)) == len(set(told)):
            break
        told = further
        found.append((axis, values))
    return found


def axes_of(trials: Sequence[Trial]) -> list[tuple[str, list[str]]]:
    """Return what a study varies: a name, and a value for every trial, of each axis.

    If that does not tell the trials apart, as for runs that were renamed by hand, the settings that differ are
    returned.
    """
    named = [varied(trial) for trial in trials]
    axes = list(dict.fromkeys(axis for values in named for axis in values))
    told = {tuple(values.get(axis, "") for axis in axes) for values in named}
    if axes and all(named) and len(told) == len({trial.run.tags.get(Tag.TRIAL, trial.run.id) for trial in trials}):
        found = [(axis, [values.get(axis, "") for values in named]) for axis in axes]
    else:
        groups = varied_params(trials)
        found = [(group[0], [trial.run.params.get(group[0], "") for trial in trials]) for group in groups]
    return [(axis, values) for axis, values in found if len(set(values)) > 1]
