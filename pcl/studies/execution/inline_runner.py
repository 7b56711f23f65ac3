"""Runs trials in this process, one after the other, without Ray: for debugging, notebooks and tiny machines.

Folders, reports, checkpoints, events and numbers are those of `pcl.studies.execution.ray_runner`. A trial is not
restarted: an error that would end a worker is the trial's end, and a resumed study runs it again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial

import torch

from pcl.studies.execution.interrupt import StopReason
from pcl.studies.execution.monitoring import Gauges, NoGauges
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.runner import Assignment, Events, Source, fail_unended
from pcl.studies.execution.worker import GpuLost, Job, run_job
from pcl.studies.ledger.folders import TrialFolder
from pcl.studies.space.trial import Trial


class InlineRunner:
    """A `TrialRunner` of this process: a trial's cores are torch's threads; with a share of a GPU it trains there."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def run_trials(self, trials: Sequence[Trial], assignment: Assignment) -> None:
        self._run(iter(trials), assignment)
        fail_unended(trials, assignment)

    def run_source(self, source: Source, assignment: Assignment) -> None:
        self._run(iter(source.next, None), assignment)
        fail_unended(source.trials, assignment)
        for trial in source.trials:
            source.ended(trial.key)

    def gauges(self, **labels: str) -> Gauges:
        return NoGauges(**labels)

    def _run(self, trials: Iterator[Trial], assignment: Assignment) -> None:
        n_threads = torch.get_num_threads()
        events = Events(assignment.listener, assignment.interrupt)
        try:
            while not assignment.interrupt.is_set():
                try:
                    trial = next(trials, None)
                except OSError as error:  # of a source, which cannot use its files
                    assignment.interrupt.set(StopReason.NO_PROPOSALS, error)
                    return
                if trial is None:
                    return
                self._train(trial, assignment, events)
        finally:
            torch.set_num_threads(n_threads)

    def _train(self, trial: Trial, assignment: Assignment, events: Events) -> None:
        job = Job.for_trial(trial, assignment.study, assignment.metric, self.resources)
        folder = assignment.study.trial(trial.key)
        assignment.listener.started(folder)
        reporter = _Reporter(folder, assignment, events)
        is_over = False
        with closing(run_job(job, reporter)) as moments:
            while not (is_over or reporter.is_stopped or assignment.interrupt.is_set()):
                try:
                    next(moments)
                except StopIteration:
                    is_over = True
                except GpuLost as error:
                    assignment.interrupt.set(StopReason.GPU_LOST, error)
                except Exception as error:  # not one of the training, which `run_job` records
                    reporter.pass_on()
                    events.failed(folder, trial, str(error).strip() or type(error).__name__)
                    return
                reporter.pass_on()
        events.ended(folder)


class _Reporter:
    """Queues a worker's messages until it pauses: an error of the listener is not a failure of the trial."""

    node = ""

    def __init__(self, folder: TrialFolder, assignment: Assignment, events: Events) -> None:
        self._folder, self._assignment, self._events = folder, assignment, events
        self._queue: list[Callable[[], None]] = []
        self.is_stopped = False  # whether the trial is to end early

    def pass_on(self) -> None:
        """Pass the queued messages on to the listener."""
        queue, self._queue = self._queue, []
        for tell in queue:
            tell()

    def reported(self, job: Job, batch: int, n_batches: int, objective: float) -> None:
        self._queue.append(partial(self._report, batch, n_batches, objective))

    def noted(self, job: Job, text: str) -> None:
        self._queue.append(partial(self._assignment.listener.noted, self._folder, text))

    def ended(self, job: Job) -> None:
        """Do nothing: the runner reports the end, also of stopped trials."""

    def unwritable(self, cause: str) -> None:
        self._events.unwritable(cause)

    def gauges(self, **labels: str) -> Gauges:
        return NoGauges(**labels)

    def _report(self, batch: int, n_batches: int, objective: float) -> None:
        stopping = self._assignment.stopping
        self.is_stopped = stopping is not None and stopping.stops(self._folder, batch, n_batches)
        self._events.reported(self._folder, batch, n_batches, objective)
