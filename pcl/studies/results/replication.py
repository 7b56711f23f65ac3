"""Replication: more seeds for configurations that cannot be told apart, compared pairwise seed by seed.

The rule: among a stage's trials that finished with every seed, the best by its mean is compared with each of the
others, by the mean difference on the seeds that both have and its 95% interval (Student's t). Those whose interval
contains 0 stay, at most `MOST_COMPARED` with the best, and get `SEEDS_A_ROUND` new seeds each, which are neither tuning
nor report seeds. This repeats among those that stay until one is left, or for `MOST_ROUNDS` rounds: these seeds then
cannot tell apart those that are left, and the best mean wins. A single seed has no interval and excludes nothing.
Repeated looks make wrong exclusions likelier than 5% (at most 5% a look).
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pcl.config.failure import Failure, FailureKind
from pcl.metrics.undefined import told_with_error
from pcl.studies.results.pareto import values_of
from pcl.studies.results.selection import Outcome, ranked
from pcl.studies.results.statistics import standard_error, t_quantile
from pcl.studies.space.search_space import Mode, Objective

MOST_COMPARED = 6
SEEDS_A_ROUND = 2
MOST_ROUNDS = 4
RULE = (
    f"replication: {SEEDS_A_ROUND} more seeds for the best and those of the next {MOST_COMPARED - 1} whose paired 95% "
    f"interval has 0 in it, until one is left, at most {MOST_ROUNDS} times"
)


@dataclass(frozen=True)
class Difference:
    """A paired difference between the best and another."""

    mean: float  # over the common seeds; positive where the best is better
    half_width: float  # of the 95% interval around it; infinite for fewer than two seeds
    n_seeds: int  # that both have

    @property
    def is_clear(self) -> bool:
        """Return whether the interval is above 0."""
        return self.mean > self.half_width


@dataclass(frozen=True)
class Replication:
    """The outcome of replication in a stage."""

    n_rounds: int = 0  # rounds of new seeds
    # All that were replicated, with their new seeds, the best first
    compared: list[Outcome] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)  # of the best from each other one, in the same order

    @property
    def n_unclear(self) -> int:
        """Return how many the best is not clearly better than."""
        return sum(not difference.is_clear for difference in self.differences)


def paired(best: Outcome, other: Outcome, objective: Objective) -> Difference:
    """Return the difference on the seeds that both have finished."""
    sign = 1.0 if objective.mode is Mode.MAX else -1.0
    lost = {*best.failures, *other.failures}
    common = [seed for seed in best.by_seed if seed in other.by_seed and seed not in lost]
    pairs = [[of.by_seed[seed].get(objective.metric, math.nan) for of in (best, other)] for seed in common]
    values = [sign * (ours - theirs) for ours, theirs in pairs if math.isfinite(ours - theirs)]
    if len(values) < 2:
        return Difference(values[0] if values else math.nan, math.inf, len(values))
    half_width = t_quantile(len(values)) * standard_error(values)
    return Difference(statistics.fmean(values), half_width, len(values))


def unclear(outcomes: Sequence[Outcome], objective: Objective) -> list[Outcome]:
    """Return the best that finished with every seed, and those that it is not clearly better than."""
    whole = [o for o in ranked(outcomes, objective) if values_of(o, [objective])]
    others = [o for o in whole[1:] if not paired(whole[0], o, objective).is_clear]
    return [*whole[:1], *others[: MOST_COMPARED - 1]]


def together(outcome: Outcome, more: Outcome) -> Outcome:
    """Merge the seeds of two trials of one configuration; if the second failed, so did its seeds."""
    failures = {**outcome.failures, **more.failures}
    if not more.is_finished:
        own = (more.result.failure if more.result else None) or Failure(FailureKind.NOT_RUN)
        failures |= {seed: more.failures.get(seed, own) for seed in more.trial.seeds}
    seconds = outcome.seconds + more.seconds
    return replace(outcome, by_seed={**outcome.by_seed, **more.by_seed}, failures=failures, seconds=seconds)


def new_seeds(known: Sequence[int], n_rounds: int) -> tuple[int, ...]:
    """Return the seeds of a round, counted from 0: the next whole numbers after all that are taken."""
    first = max(known) + 1 + SEEDS_A_ROUND * n_rounds
    return tuple(range(first, first + SEEDS_A_ROUND))


def concluded(left: Sequence[Outcome], excluded: Sequence[Outcome], objective: Objective, n_rounds: int) -> Replication:
    """Compare all that were replicated with the best: those that are left, and those excluded, with fewer seeds."""
    if not n_rounds:
        return Replication()
    best, *others = [*left, *ranked(excluded, objective)]
    return Replication(n_rounds, [best, *others], [paired(best, other, objective) for other in others])


def described(replication: Replication, objective: Objective) -> list[str]:
    """Return a line for each configuration: its mean, and its paired difference from the best."""
    lines = []
    for place, outcome in enumerate(replication.compared):
        values = outcome.values(objective.metric)
        mean = told_with_error(outcome.mean(objective.metric), outcome.standard_error(objective.metric))
        behind = ""
        if place:
            difference = replication.differences[place - 1]
            clear = "" if difference.is_clear else ", not clear"
            interval = told_with_error(difference.mean, difference.half_width)
            behind = f"  behind by {interval} ({difference.n_seeds} seeds{clear})"
        lines.append(f"  {mean}  {len(values)} seeds  {outcome.trial.label}{behind}")
    return lines
