"""Names of metrics and axes for people, and what a trial's name says."""

import re
from collections.abc import Sequence

from dashboards.board.store.records import Trial, varied_params

# What tables of trials show beside the objective, where it is recorded
MAIN_METRICS = (
    "eval/kappa_rank_corr", "eval/kappa_mae", "eval/mu_rank_corr", "eval/mu_mae",
    "val/crop_rank_corr", "val/entropy_rank_corr", "val/recall_at_1",
)  # fmt: skip
_MOST_TELLING = 3  # columns: with more, what trials reached is off the screen
_VALUE = re.compile(r"(\w+)=(.*?)(?=\s\w+=|$)")


def shown_metrics(objective: str, trials: Sequence[Trial]) -> list[str]:
    """The objective and the main metrics that the trials have."""
    recorded = {metric for trial in trials for metric in trial.run.metrics}
    return [objective, *(metric for metric in MAIN_METRICS if metric in recorded and metric != objective)]


def cell_name(trial: Trial) -> str:
    """Which cell of the paper a trial of a reproduction is of, or which point of a grid."""
    return trial.run.name.removeprefix("cell=")


def telling_apart(trials: Sequence[Trial]) -> list[tuple[str, list[str]]]:
    """The few settings that tell apart trials of one name, as those of several grids have: as `axes_of`."""
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
    """What a study varies: a name, and a value for every trial, of each axis.

    The names of trials say it in the words of the search space; where they say nothing that sets the trials apart, as
    after they were changed by hand, the settings that differ do.
    """
    named = [dict(_VALUE.findall(trial.run.name)) for trial in trials]
    axes = list(dict.fromkeys(axis for values in named for axis in values))
    told = {tuple(values.get(axis, "") for axis in axes) for values in named}
    if axes and all(named) and len(told) == len({trial.run.tags.get("pcl.trial", trial.run.id) for trial in trials}):
        found = [(axis, [values.get(axis, "") for values in named]) for axis in axes]
    else:
        groups = varied_params(trials)
        found = [(group[0], [trial.run.params.get(group[0], "") for trial in trials]) for group in groups]
    return [(axis, values) for axis, values in found if len(set(values)) > 1]
