"""The Optuna study of a stage, in STORAGE/STUDY/optuna.db: it is asked for points and told their results.

A proposal depends on the sampler's seed, the number of the proposal and the content of the study, and on no state of a
process: a new driver proposes what the old one would have proposed.
"""

import hashlib
import sqlite3
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from pcl.config.run_config import Plain
from pcl.storage.files import first_line, warn
from pcl.storage.sqlite_files import clear_unfinished, is_damaged, new_database, put, revision, set_database_aside
from pcl.studies.space.axes import Stage
from pcl.studies.space.ranges import Range
from pcl.studies.space.search_method import GP, Method, searched
from pcl.studies.space.search_space import Mode, Objective

DATABASE = "optuna.db"
_MOST_STARTUP = 10  # Optuna's default number of random draws before a sampler starts
_KEY, _WINNER, _WARM = "trial", "winner", "warm"


class Point(NamedTuple):
    """A point that Optuna proposed."""

    number: int  # its number in Optuna
    values: dict[str, Plain]  # values by axis
    key: str  # key of its trial, once that is known
    is_open: bool  # whether its result has not been told yet


@dataclass(frozen=True)
class Known:
    """The result of a point."""

    values: Sequence[float] | None = None  # value of every objective; None if it failed or was stopped early
    # Percent done and objective of a point that was stopped early, from which samplers learn; else empty
    curve: Sequence[tuple[float, float]] = ()

    @property
    def state(self) -> TrialState:
        return TrialState.PRUNED if self.curve else TrialState.FAIL if self.values is None else TrialState.COMPLETE


NOTHING = Known()


@dataclass(frozen=True)
class Samples:
    """The place and the method of a stage's sampling."""

    database: Path  # file of the studies, one study for each stage
    name: str  # name of the study in it
    stage: Stage
    objectives: tuple[Objective, ...]  # objectives whose values are told
    method: Method  # sampler and seed
    n_trials: int  # number of trials; a third of them, at most ten, are drawn at random before the sampler starts


class Sampling:
    """Ask-and-tell access to a stage's Optuna study.

    A database that is damaged or incomplete is set aside and rebuilt: the trials' folders have all of its content.

    Args:
        samples: Where and how the stage is sampled.
        winner: Values of earlier stages' axes. A study that was started with others is started anew.
        is_anew: Whether to start anew in any case.

    Attributes:
        aside: New path of the old database, if it was set aside.

    Raises:
        OSError: If the database cannot be read or written; so do all methods.
    """

    def __init__(self, samples: Samples, winner: Mapping[str, Plain], *, is_anew: bool = False) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._samples = samples
        self._distributions = distributions_of(samples.stage)
        self.aside: Path | None = None
        with self._database():
            storage = self._storage()
            if samples.name in optuna.get_all_study_names(storage):
                left = optuna.load_study(study_name=samples.name, storage=storage)
                if is_anew or left.user_attrs.get(_WINNER) != dict(winner):
                    optuna.delete_study(study_name=samples.name, storage=storage)
            self._study = optuna.create_study(
                storage=storage, study_name=samples.name, load_if_exists=True,
                directions=["maximize" if o.mode is Mode.MAX else "minimize" for o in samples.objectives],
            )  # fmt: skip
            self._study.set_metric_names([objective.metric for objective in samples.objectives])
            self._study.set_user_attr(_WINNER, dict(winner))

    def _storage(self) -> optuna.storages.RDBStorage:
        """Return Optuna's storage, after creating its tables if there are none."""
        path = self._samples.database
        clear_unfinished(path)
        if path.exists():
            why = "damaged" if is_damaged(path) else "" if revision(path) else "incomplete"
            if why:
                self.aside = set_database_aside(path, why)
                warn(f"{path} is {why}: it was renamed to {self.aside.name} and rebuilt from the trials' folders.")
        if not path.exists():
            with new_database(path) as new:
                _make(new)
                put(new, path)
        return optuna.storages.RDBStorage(_url(path))

    def points(self) -> list[Point]:
        """Return all points proposed or added so far, in order; points of interrupted asks are marked as failed."""
        with self._database():
            found = []
            for trial in self._study.get_trials(deepcopy=False):
                is_open = trial.state is TrialState.RUNNING
                if self._is_whole(trial):
                    key = str(trial.user_attrs.get(_KEY, ""))
                    found.append(Point(trial.number, dict(trial.params), key, is_open))
                elif is_open:
                    self._study.tell(trial.number, state=TrialState.FAIL)
            return found

    @property
    def warm(self) -> set[str]:
        """Keys of the trials of another study that were added."""
        with self._database():
            return {str(t.user_attrs[_KEY]) for t in self._study.get_trials(deepcopy=False) if _WARM in t.user_attrs}

    def ask(self, values: Mapping[str, Plain] | None = None) -> Point:
        """Propose a point: the sampler's, or the given one."""
        with self._database():
            every = self._study.get_trials(deepcopy=False)
            is_queued = any(trial.state is TrialState.WAITING for trial in every)  # by a driver that was killed then
            if values is not None and not is_queued:
                self._study.enqueue_trial(dict(values))
            # An interrupted ask does not count: the next one repeats it and proposes the same.
            samples, number = self._samples, sum(map(self._is_whole, every))
            sampler = sampler_of(samples.method, samples.stage, samples.n_trials, number)
            self._study.sampler = sampler if values else warned(sampler, self._study, every, self._distributions)
            trial = self._study.ask(self._distributions)
            return Point(trial.number, dict(trial.params), "", is_open=True)

    def _is_whole(self, trial: FrozenTrial) -> bool:
        """Return whether a point has all its values: one that was enqueued or whose ask was interrupted has not."""
        return set(trial.params) == set(self._distributions)

    def name(self, number: int, key: str) -> None:
        """Record the key of a point's trial."""
        with self._database():
            self._study._storage.set_trial_user_attr(self._id(number), _KEY, key)

    def tell(self, number: int, known: Known) -> None:
        with self._database():
            storage, trial_id = self._study._storage, self._id(number)
            if known.curve and not storage.get_trial(trial_id).state.is_finished():
                for percent, value in known.curve:
                    storage.set_trial_intermediate_value(trial_id, round(percent), value)
            self._study.tell(number, known.values, known.state, skip_if_finished=True)

    def add(self, point: Mapping[str, Plain], key: str, known: Known, warm: str = "") -> None:
        """Add the result of a point that this study has not proposed, possibly from another study."""
        with self._database():
            self._study.add_trial(self._frozen(point, {_KEY: key, **({_WARM: warm} if warm else {})}, known))

    def _id(self, number: int) -> int:
        """Return a trial's id in the storage, which Optuna needs to write to a trial by its number."""
        return int(self._study._storage.get_trial_id_from_study_id_trial_number(self._study._study_id, number))

    def _frozen(self, point: Mapping[str, Plain], attributes: dict[str, Any], known: Known) -> FrozenTrial:
        last = [known.curve[-1][1]] if known.curve else known.values  # the value of a pruned trial is its last one
        return create_trial(
            state=known.state, values=last, params=dict(point), distributions=self._distributions,
            user_attrs=attributes, intermediate_values={round(percent): value for percent, value in known.curve},
        )  # fmt: skip

    @contextmanager
    def _database(self) -> Iterator[None]:
        """Turn errors of the database into an OSError, and ignore warnings about experimental parts of Optuna."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except (optuna.exceptions.StorageInternalError, SQLAlchemyError, sqlite3.Error) as error:
            told = first_line(error.__cause__ or error)
            hint = "if it is damaged, the next start rebuilds it from the trials' folders"
            raise OSError(f"{self._samples.database} cannot be used ({told}; {hint})") from None


def _make(path: Path) -> None:
    optuna.storages.RDBStorage(_url(path)).engine.dispose()


def _url(path: Path) -> str:
    return URL.create("sqlite", database=str(path.absolute())).render_as_string()


def sampler_of(method: Method, stage: Stage, n_trials: int, number: int) -> optuna.samplers.BaseSampler:
    """Return the sampler for a single proposal. Running trials count as bad (TPE) or are taken into account (GP)."""
    text = f"{method.seed} {stage.name} {number}"
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    n_startup = max(1, min(_MOST_STARTUP, n_trials // 3))
    if method.sampler == GP:
        return optuna.samplers.GPSampler(seed=seed, n_startup_trials=n_startup)
    return optuna.samplers.TPESampler(seed=seed, n_startup_trials=n_startup, constant_liar=True)


def warned(
    sampler: optuna.samplers.BaseSampler, study: optuna.Study, every: Sequence[FrozenTrial],
    distributions: dict[str, BaseDistribution],
) -> optuna.samplers.BaseSampler:  # fmt: skip
    """Return a sampler for one proposal that rates the failed trials in `every` as low as the worst finished one.

    Samplers ignore failed trials: where the best known point is close to settings that diverge, they would propose
    those again and again. In the study, the failed trials stay failed.
    """
    trials = [trial for trial in every if trial.state not in (TrialState.FAIL, TrialState.WAITING)]
    failed = [trial.params for trial in every if trial.state is TrialState.FAIL]
    finished = [trial.values for trial in trials if trial.state is TrialState.COMPLETE]
    points = {repr(params): params for params in failed if set(params) == set(distributions)}
    for trial in trials:
        points.pop(repr(trial.params), None)  # run again since, or running
    if not finished or not points:
        return sampler
    ends = [min if direction is StudyDirection.MAXIMIZE else max for direction in study.directions]
    worst = [end(values) for end, values in zip(ends, zip(*finished, strict=True), strict=True)]
    told = optuna.create_study(directions=study.directions, sampler=sampler)
    told.add_trials([
        *trials, *(create_trial(values=worst, params=point, distributions=distributions) for point in points.values())
    ])  # fmt: skip
    proposed = told.ask(distributions).params
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PartialFixedSampler is experimental
        return optuna.samplers.PartialFixedSampler(proposed, optuna.samplers.RandomSampler())  # nothing is left to draw


def distributions_of(stage: Stage) -> dict[str, BaseDistribution]:
    """Return the Optuna distribution of each axis."""
    return {name: _distribution(searched(name, axis)) for name, axis in stage.axes.items()}


def _distribution(axis: Range | tuple[Plain, ...]) -> BaseDistribution:
    if not isinstance(axis, Range):
        return CategoricalDistribution(axis)
    if axis.is_whole:
        return IntDistribution(int(axis.low), int(axis.high), log=axis.is_log, step=int(axis.step) or 1)
    return FloatDistribution(axis.low, axis.high, log=axis.is_log, step=axis.step or None)
