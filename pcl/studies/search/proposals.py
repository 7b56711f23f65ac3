"""Trials that a sampler proposes one after the other, kept consistent between Optuna's study and the trials' folders.

The folders are authoritative. Every result there is told to Optuna, whoever produced it; a trial without a
result that Optuna believes to be running is run again.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

from pcl.config.run_config import Plain
from pcl.studies.ledger.folders import StudyFolder, TrialFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.results.metric_onset import judged_curve
from pcl.studies.results.pareto import values_of
from pcl.studies.results.reuse import is_lost, take_over
from pcl.studies.results.selection import Outcome
from pcl.studies.search.optuna_study import DATABASE, NOTHING, Known, Point, Samples, Sampling
from pcl.studies.space.search_method import draws
from pcl.studies.space.search_space import Objective, SearchSpace
from pcl.studies.space.trial import Trial

MOST_REPEATS = 10  # proposals in a row that are known, or not possible, before a new point is drawn at random
_MOST_DRAWS = 1000  # draws without a new point before the stage counts as exhausted


class Proposer:
    """The trials of a stage, proposed one after the other.

    `winner` is `varied` of the best trial of the stage before, empty for the first. `reuse` looks for a trial's result
    elsewhere and copies it into the trial's folder. `on_known`, which may be set later, is called with trials that
    already have a result when they are proposed. `is_rerun` starts the search anew and runs known trials again.
    """

    def __init__(
        self, space: SearchSpace, spec: StudySpec, folder: StudyFolder, stage_index: int,
        winner: Mapping[str, Plain], objectives: tuple[Objective, ...], reuse: Callable[[Trial], None],
        on_known: Callable[[TrialFolder], None], *, is_rerun: bool = False,
    ) -> None:  # fmt: skip
        self._space, self._spec, self._folder = space, spec, folder
        self._index, self._winner, self._objectives = stage_index, dict(winner), objectives
        self._reuse, self.on_known, self._is_rerun = reuse, on_known, is_rerun
        stage = space.stages[stage_index]
        self._n_trials = spec.n_trials(space)[stage_index]
        name = folder.name if len(space.stages) == 1 else f"{folder.name}: {stage.name}"
        samples = Samples(folder.path / DATABASE, name, stage, objectives, spec.method, self._n_trials)
        self._sampling = Sampling(samples, winner, is_anew=is_rerun)
        if self._sampling.aside:
            folder.mirror.push(self._sampling.aside.name)  # else the next pull would delete it here
        self._draws = draws(stage, spec.method.seed)
        self._known_points: dict[str, Trial | None] = {}  # those of a small space are drawn again and again
        self._trials: dict[str, Trial] = {}
        self._open: dict[str, list[int]] = {}  # key -> numbers of the points that wait for its result
        self._waiting: list[Trial] = []  # started by an earlier driver
        self._again: set[str] = set()  # keys of those whose earlier result Optuna has been told
        self._warm: set[str] = set()
        self._n_repeats = 0  # proposals in a row, until now, that are known or not possible
        self._begin(is_new=not self._sampling.points())

    @property
    def trials(self) -> list[Trial]:
        """All trials so far, including those of a warm start, in order."""
        return list(self._trials.values())

    @property
    def n_trials(self) -> int:
        """Final number of trials, including those of a warm start."""
        return self._n_trials + len(self._warm)

    def next(self) -> Trial | None:
        """Return a trial that has no result yet; None once there are enough trials, or the stage is exhausted."""
        trial = self._next()
        self._folder.mirror.push(DATABASE)  # before the trial starts, so that a new driver knows of it
        return trial

    def _next(self) -> Trial | None:
        for key in list(self._open):
            self.ended(key)
        if self._waiting:
            return self._waiting.pop(0)
        while len(self._trials) < self.n_trials:
            is_stuck = self._n_repeats >= MOST_REPEATS
            values = self._drawn() if is_stuck else None
            if is_stuck and values is None:
                self._n_trials = len(self._trials) - len(self._warm)  # the space is exhausted
                return None
            trial = self._take(self._sampling.ask(values))
            if trial is None:
                self._n_repeats += 1
                continue
            self._n_repeats = 0
            if self._folder.trial(trial.key).result() is None:
                return trial
            self.ended(trial.key)
            self.on_known(self._folder.trial(trial.key))
        return None

    def has_next(self) -> bool:
        trial = self.next()
        self._waiting = [trial, *self._waiting] if trial else []
        return trial is not None

    def ended(self, key: str) -> None:
        """Tell Optuna the result in a trial's folder."""
        folder = self._folder.trial(key)
        if folder.result() is None:
            return
        trial = self._trials[key]
        known = self._known(trial, folder)
        for number in self._open.pop(key, []):
            self._sampling.tell(number, known)
        if key in self._again:
            self._sampling.add(self._values(trial), key, known)
            self._again.remove(key)

    def _known(self, trial: Trial, folder: TrialFolder) -> Known:
        outcome = Outcome.of(trial, folder)
        if outcome.is_stopped:
            return Known(curve=judged_curve(folder.rows(), trial.run_config, self._objectives[0].metric))
        return Known(values_of(outcome, self._objectives))

    def _take(self, point: Point) -> Trial | None:
        """Return the trial of a point if it is a new one; tell Optuna known results at once."""
        trial = self._trial(point.values)
        if trial is None:
            self._sampling.tell(point.number, NOTHING)
            return None
        self._sampling.name(point.number, trial.key)
        self._open.setdefault(trial.key, []).append(point.number)
        if trial.key in self._trials:
            self.ended(trial.key)
            return None
        self._trials[trial.key] = trial
        folder = self._folder.trial(trial.key)
        if self._is_rerun:
            folder.reopen()
        elif folder.result() is None:
            self._reuse(trial)
        folder.begin(trial)
        return trial

    def _begin(self, *, is_new: bool) -> None:
        """Bring Optuna's study in line with the folders."""
        if is_new and self._spec.method.warm_start:
            self._warm_up(self._folder.beside(self._spec.method.warm_start))
        self._warm = self._sampling.warm
        for point in self._sampling.points():
            trial = self._trial(point.values)
            if trial is None:
                if point.is_open:
                    self._sampling.tell(point.number, NOTHING)
                self._n_repeats += 1
                continue
            self._n_repeats = self._n_repeats + 1 if trial.key in self._trials else 0
            self._trials.setdefault(trial.key, trial)
            folder = self._folder.trial(trial.key)
            if is_lost(folder.result()):
                folder.reopen()
            if point.is_open:
                self._sampling.name(point.number, trial.key)
                self._open.setdefault(trial.key, []).append(point.number)
                self.ended(trial.key)
            folder.begin(trial)
            if folder.result() is None and trial not in self._waiting:
                self._waiting.append(trial)
                self._again |= set() if point.is_open else {trial.key}
        for trial in self._of_stage(self._folder) if not self._is_rerun else []:
            if trial.key not in self._trials:  # the database was lost, or is older than the folders
                known = self._known(trial, self._folder.trial(trial.key))
                self._sampling.add(self._values(trial), trial.key, known)
                self._trials[trial.key] = trial

    def _warm_up(self, other: StudyFolder) -> None:
        """Add the finished trials of another study."""
        other.pull()
        for trial in self._of_stage(other):
            outcome = Outcome.of(trial, other.trial(trial.key))
            if not outcome.is_finished:
                continue
            take_over(self._folder, trial, outcome, other.name)
            known = Known(values_of(outcome, self._objectives))
            self._sampling.add(self._values(trial), trial.key, known, other.name)

    def _of_stage(self, study: StudyFolder) -> list[Trial]:
        """Return the ended trials of this stage in a study's folders, in the order in which they ended."""
        name, ended = self._space.stages[self._index].name, []
        for folder in study.trials():
            trial, result = folder.trial(), folder.result()
            if result is not None and trial.stage == name and set(trial.varied) == self._axes:
                again = self._trial(self._values(trial))
                if again is not None and again.key == trial.key:
                    ended.append((result.time_ms, trial.key, again))
        return [trial for _, _, trial in sorted(ended, key=lambda entry: entry[:2])]

    @property
    def _axes(self) -> set[str]:
        return {axis for stage in self._space.stages[: self._index + 1] for axis in stage.axes}

    def _values(self, trial: Trial) -> dict[str, Plain]:
        return {axis: trial.varied[axis] for axis in self._space.stages[self._index].axes}

    def _trial(self, values: Mapping[str, Plain]) -> Trial | None:
        """Return the trial of a point; None if it is not possible."""
        point = repr(list(values.items()))
        if point not in self._known_points:
            self._known_points[point] = None
            with suppress(ValueError):
                self._known_points[point] = self._spec.trial_at(self._space, self._index, values, self._winner)
        return self._known_points[point]

    def _drawn(self) -> dict[str, Plain] | None:
        """Draw a random point that is new and possible; None if there is none."""
        for _ in range(_MOST_DRAWS):
            values = next(self._draws)
            trial = self._trial(values)
            if trial is not None and trial.key not in self._trials:
                return values
        return None
