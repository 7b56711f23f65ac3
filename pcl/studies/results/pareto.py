"""Several objectives, and the Pareto front of trials."""

import dataclasses
import math
from collections.abc import Iterable, Sequence

from pcl.metrics.names import larger_is_better
from pcl.studies.results.selection import Outcome
from pcl.studies.space.search_space import Mode, Objective, SearchSpace


def check_objectives(metrics: Sequence[str], space: SearchSpace) -> None:
    """Raise a ValueError if an objective is not a metric of the space's task, has no better end, or is repeated."""
    if len(set(metrics)) != len(metrics):
        raise ValueError(f"`objectives` must have every metric once, but got {', '.join(metrics)}.")
    for metric in metrics:
        objective_of(metric, space)


def objective_of(metric: str, space: SearchSpace) -> Objective:
    """Return a metric as an objective; the space's own objective keeps the space's direction."""
    known = space.experiment.metrics
    if metric not in known:
        raise ValueError(f"`objectives` must be some of {', '.join(known)}, but got {metric!r}.")
    if metric == space.objective.metric:
        return space.objective
    is_max = larger_is_better(metric)
    if is_max is None:
        raise ValueError(f"`objectives` cannot have {metric!r}: neither end of it is the better one.")
    return Objective(metric, Mode.MAX if is_max else Mode.MIN)


def with_objectives(space: SearchSpace, metrics: Sequence[str]) -> tuple[SearchSpace, tuple[Objective, ...]]:
    """Return the space with the first metric as its objective, and all objectives; by default its own."""
    objectives = tuple(objective_of(metric, space) for metric in metrics) or (space.objective,)
    if objectives[0] == space.objective:
        return space, objectives
    return dataclasses.replace(space, objective=objectives[0]), objectives


def values_of(outcome: Outcome, objectives: Sequence[Objective]) -> list[float] | None:
    """Return the mean of every objective; None unless every seed finished with finite values."""
    values = [outcome.mean(objective.metric) for objective in objectives]
    is_whole = outcome.is_finished and not outcome.failures and all(map(math.isfinite, values))
    return values if is_whole else None


def pareto_front(outcomes: Iterable[Outcome], objectives: Sequence[Objective]) -> list[Outcome]:
    """Return the non-dominated trials, the best by the first objective first."""
    found = {outcome.trial.key: (outcome, values_of(outcome, objectives)) for outcome in outcomes}
    signs = [1.0 if objective.mode is Mode.MAX else -1.0 for objective in objectives]
    points = [
        (tuple(sign * value for sign, value in zip(signs, values, strict=True)), outcome)
        for outcome, values in found.values()
        if values is not None
    ]
    points.sort(key=lambda point: point[0], reverse=True)
    front: list[tuple[tuple[float, ...], Outcome]] = []
    for goods, outcome in points:  # a dominated trial is dominated by an earlier one
        if not any(_beats(other, goods) for other, _ in front):
            front.append((goods, outcome))
    return [outcome for _, outcome in front]


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))
