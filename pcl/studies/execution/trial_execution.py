"""Runs a study's trials: takes over what is known, runs what is left, and has everything recorded."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from pcl.metrics.names import TRAIN_S
from pcl.studies.execution.early_stopping import EarlyStopping
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.progress import Progress
from pcl.studies.execution.runner import Assignment, Listener, TrialRunner
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.results.reuse import is_lost, take_over
from pcl.studies.results.selection import Outcome
from pcl.studies.space.search_space import Objective
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.recorder import Recorder
from pcl.studies.tracking.run_content import Winner
from pcl.studies.tracking.tracker import End, StoreError, Tracker

_PATIENCE_S = 20.0  # how long MLflow may accept nothing before a study ends without it
_AT_ONCE = 8  # questions to MLflow, which may be far away


@dataclass(frozen=True)
class Choices:
    """A user's choices about how a study runs; nothing here changes its results."""

    runner: TrialRunner  # runs the trials: on Ray, or in this process
    is_finalized: bool = True  # whether the best run on the report seeds at the end
    is_rerun: bool = False  # whether trials run again that are known already
    is_fail_fast: bool = False  # whether the first failure ends the study


class Execution:
    """Runs lists of trials of one study, which is open in the tracker; see `run_all`."""

    def __init__(
        self, objective: Objective, folder: StudyFolder, tracker: Tracker, recorder: Recorder, choices: Choices,
        interrupt: Interrupt, say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self.objective, self.folder, self.choices = objective, folder, choices
        self._tracker, self._recorder, self._interrupt, self._say = tracker, recorder, interrupt, say
        interrupt.leaving.record = lambda: close_study(tracker, recorder, End.KILLED)

    def run_all(self, trials: list[Trial], title: str, stopping: EarlyStopping | None = None) -> list[Outcome]:
        """Return every trial's outcome, run or known."""
        unknown = []
        for trial in trials:
            folder = self.folder.trial(trial.key)
            if self.choices.is_rerun or is_lost(folder.result()):
                folder.reopen()
            elif folder.result() is None:
                unknown.append(trial)
            else:
                folder.begin(trial)  # writes trial.json again if it was set aside
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(self.reuse, unknown))
        left = [trial for trial in trials if self.folder.trial(trial.key).result() is None]
        keys = {trial.key for trial in left}
        before = [Outcome.of(t, self.folder.trial(t.key)) for t in trials if t.key not in keys]
        self.announce(title, len(trials), before)
        if left and not self._interrupt.is_set():
            with self.progress(trials[0].stage, trials, len(trials), before) as progress:
                self.choices.runner.run_trials(left, self.assignment(progress, stopping))
        return [Outcome.of(trial, self.folder.trial(trial.key)) for trial in trials]

    def assignment(self, listener: Listener, stopping: EarlyStopping | None) -> Assignment:
        """Return what the runner needs besides this study's trials."""
        return Assignment(self.folder, self.objective.metric, listener, self._interrupt, stopping)

    def announce(self, title: str, n_trials: int, before: list[Outcome]) -> None:
        """Announce a stage, and record what is known already."""
        for outcome in before:
            self._recorder.submit(self.folder.trial(outcome.trial.key))
        known = f", {len(before)} known" if before else ""
        self._say(f"{title} ({n_trials} trials{known})")

    @contextmanager
    def progress(self, stage: str, trials: list[Trial], n_trials: int, before: list[Outcome]) -> Iterator[Progress]:
        """Yield the progress of a stage, the listener of its trials."""
        with (
            self.choices.runner.gauges(study=self.folder.name, stage=stage, metric=self.objective.metric) as gauges,
            Progress(
                trials, n_trials, before, self.objective, self._recorder, self._interrupt,
                self.choices.is_fail_fast, self._say, gauges, self.choices.runner.resources.gpus > 0,
            ) as progress,
        ):  # fmt: skip
            yield progress

    def reuse(self, trial: Trial) -> None:
        """Take over the result of the same trial from another study, if there is one."""
        if self.folder.trial(trial.key).rows():
            return  # begun here: it continues here
        try:
            found = self._tracker.finished(trial.key)
            if found is None or found.study == self.folder.name or set(found.by_seed) != set(trial.seeds):
                return
            if self._tracker.last_batch(found) != trial.config["training.n_batches"]:
                return  # a record that is not of the whole training
        except StoreError:
            return
        seconds = max((m.get(TRAIN_S, math.nan) for m in found.by_seed.values()), default=math.nan)
        outcome = Outcome(trial, None, found.by_seed, found.failures, seconds=seconds)
        take_over(self.folder, trial, outcome, found.study)


def close_study(tracker: Tracker, recorder: Recorder, end: End, winner: Winner | None = None) -> list[str]:
    """Wait for the records and end the study in MLflow; return what is missing there."""
    missing = recorder.close(timeout_s=_PATIENCE_S)
    if missing:
        return missing
    failures = []
    try:
        if winner is not None:
            tracker.summarize(winner)
    except StoreError as error:  # the study ends all the same
        failures.append(str(error))
    try:
        tracker.close_study(end)
    except StoreError as error:
        failures.append(str(error))
    return failures
