"""Finished trials of all studies, as MLflow has them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pcl.studies.ledger.folders import Metrics
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.run_content import reported
from pcl.studies.tracking.store import Store
from pcl.studies.tracking.tags import EXPERIMENTS, Failure, RunKind, RunState, Tag, failure_of

if TYPE_CHECKING:
    from mlflow.entities import Run

_ENDS = (RunState.FINISHED, RunState.FAILED)


@dataclass(frozen=True)
class Found:
    """An ended trial of any study."""

    study: str
    run_id: str
    by_seed: dict[int, Metrics]  # the last metrics of every seed
    failures: dict[int, Failure]  # of seeds that ended early
    tags: Mapping[str, str] = field(default_factory=dict)  # of its run
    end_ms: int = 0  # when it ended

    @property
    def key(self) -> str:
        """Return the trial's key."""
        return self.tags.get(Tag.TRIAL, "")


@dataclass(frozen=True)
class Known:
    """The recorded results of a configuration on some seeds."""

    seeds: tuple[int, ...]  # those that are asked about
    trials: tuple[Found, ...] = ()  # that trained some of them; if several have a seed, the first counts

    @property
    def by_seed(self) -> dict[int, Metrics]:
        """Return the last metrics of the seeds that were trained."""
        return {seed: found.by_seed[seed] for seed, found in self._owners().items()}

    @property
    def failures(self) -> dict[int, Failure]:
        """Return the failures of seeds that ended early."""
        return {seed: found.failures[seed] for seed, found in self._owners().items() if seed in found.failures}

    @property
    def missing(self) -> tuple[int, ...]:
        """Return the seeds that no trial has."""
        there = self._owners()
        return tuple(seed for seed in self.seeds if seed not in there)

    def _owners(self) -> dict[int, Found]:
        found = {seed: trial for trial in reversed(self.trials) for seed in trial.by_seed}
        return {seed: found[seed] for seed in self.seeds if seed in found}


def known(store: Store, trial: Trial) -> Known:
    """Return the recorded results of a trial: its own, or those of others that share some of its seeds.

    A trial that failed is known too, unless it failed through no fault of its own.
    """
    itself = [found for end in _ENDS for found in ended_trials(store, {Tag.TRIAL: trial.key}, end, most=1)]
    others = [] if itself else [found for end in _ENDS for found in ended_trials(store, {Tag.CELL: trial.cell}, end)]
    taken = Known(trial.seeds)
    for found in sorted(itself + others, key=lambda found: -len(set(found.by_seed) & set(trial.seeds))):
        is_lost = any(failure.kind.is_of_machine for failure in found.failures.values())
        if set(found.by_seed) & set(taken.missing) and not is_lost:
            taken = Known(trial.seeds, (*taken.trials, found))
    return taken


def ended_trials(store: Store, tags: Mapping[str, str], end: RunState, most: int = 0) -> list[Found]:
    """Return trials with these tags and this end, the oldest first; all, or `most` of them."""
    runs = store.find(store.experiments(EXPERIMENTS), {Tag.KIND: RunKind.TRIAL, **tags}, end, most=most)
    return [_found(run, _seed_runs(store, run)) for run in runs]


def _seed_runs(store: Store, run: "Run") -> "list[Run]":
    if Tag.SEED in run.data.tags:
        return [run]
    of_seeds = {Tag.KIND: RunKind.SEED, Tag.TRIAL: run.data.tags[Tag.TRIAL], Tag.PARENT: run.info.run_id}
    return store.find([run.info.experiment_id], of_seeds)


def _found(run: "Run", of_seeds: "Iterable[Run]") -> Found:
    by_seed = {int(one.data.tags[Tag.SEED]): one.data for one in of_seeds}
    failures = {seed: failure for seed, data in by_seed.items() if (failure := failure_of(data.tags))}
    metrics = {seed: reported(data.metrics) for seed, data in by_seed.items()}
    tags = run.data.tags
    return Found(tags[Tag.STUDY], run.info.run_id, metrics, failures, tags, run.info.end_time or 0)
