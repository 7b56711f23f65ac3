"""Selection of the best trial, by the objective's mean over the tuning seeds. Report seeds never enter."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from pcl.config.failure import Failure
from pcl.metrics.undefined import mean_of
from pcl.studies.ledger.folders import Metrics, Result, Status, TrialFolder
from pcl.studies.results.statistics import standard_error
from pcl.studies.space.search_space import Mode, Objective
from pcl.studies.space.trial import Trial


@dataclass(frozen=True)
class Outcome:
    """A trial and what it reached."""

    trial: Trial
    result: Result | None = None  # how it ended; none while it has not
    by_seed: dict[int, Metrics] = field(default_factory=dict)  # last metrics of every seed
    failures: dict[int, Failure] = field(default_factory=dict)  # of seeds that ended early
    batch: int = 0  # batches trained
    seconds: float = 0.0  # spent training

    @classmethod
    def of(cls, trial: Trial, folder: TrialFolder) -> "Outcome":
        """Read the trial's folder."""
        rows = folder.rows()
        if not rows:
            return cls(trial, folder.result())
        last = rows[-1]
        return cls(trial, folder.result(), last.by_seed, last.failures, last.batch, last.seconds)

    @property
    def is_finished(self) -> bool:
        """Return whether it finished."""
        return self.result is not None and self.result.status is Status.FINISHED

    @property
    def is_stopped(self) -> bool:
        """Return whether a scheduler ended it early."""
        return self.result is not None and self.result.status is Status.STOPPED

    @property
    def cause(self) -> str:
        """Return a sentence on why the trial or some of its seeds failed, or why it was stopped."""
        if self.result is not None and self.result.cause:
            return self.result.cause
        return "; ".join(f"seed {seed}: {failure}" for seed, failure in self.failures.items())

    def values(self, metric: str) -> list[float]:
        """Return the metric of every seed that has not failed."""
        return [m[metric] for seed, m in self.by_seed.items() if seed not in self.failures and metric in m]

    def mean(self, metric: str) -> float:
        """Return the mean over the seeds that have not failed; NaN if there is none, or one is undefined."""
        return mean_of(self.values(metric))

    def counts(self, metric: str) -> bool:
        """Return whether it finished with a finite mean."""
        return self.is_finished and math.isfinite(self.mean(metric))

    def standard_error(self, metric: str) -> float:
        """Return the standard error of that mean; NaN for fewer than two seeds."""
        return standard_error(self.values(metric))


def ranked(outcomes: Iterable[Outcome], objective: Objective) -> list[Outcome]:
    """Sort, best first: trials whose every seed finished, those that lost seeds, then those without a value.

    Among the last, stopped trials come before failed ones: a value from part of a training is not compared with one
    from a whole training.
    """

    def place(outcome: Outcome) -> tuple[int, float]:
        mean = outcome.mean(objective.metric)
        if not outcome.counts(objective.metric):
            return (2, -outcome.batch) if outcome.is_stopped else (3, 0.0)
        return int(bool(outcome.failures)), -mean if objective.mode is Mode.MAX else mean

    return sorted(outcomes, key=place)


def winner(outcomes: Iterable[Outcome], objective: Objective) -> Outcome | None:
    """Return the best trial, if any finished with a finite value."""
    best = next(iter(ranked(outcomes, objective)), None)
    return best if best is not None and best.counts(objective.metric) else None
