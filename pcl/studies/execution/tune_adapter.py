"""Adapters between Tune's interfaces and ours: the trainable, events of trials, early stopping, interruption."""

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

import ray
import torch
from ray import tune
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from pcl.studies.execution.early_stopping import EarlyStopping
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.execution.monitoring import Gauges
from pcl.studies.execution.runner import Events, Source
from pcl.studies.execution.worker import GpuLost, Job, folder_of, run_job
from pcl.studies.ledger.folders import TrialFolder
from pcl.studies.space.trial import Trial
from pcl.training.interleaving import interleaved

# Keys of a worker's messages to Tune: the trial's folder, why its files cannot be written, what happened to a file, why
# it can no longer use its GPU (a line, and the traceback).
FOLDER, UNWRITABLE, NOTE, GPU_FAULT = "folder", "unwritable", "note", "gpu_fault"


def run_jobs(config: dict[str, Any]) -> None:
    """Tune's trainable: `config["jobs"]` are what `Job.as_config` returned; they are trained side by side.

    Told to stop, it returns once its kernels have ended. Tune's own word would reach it only after its next report, and
    a worker that Tune has to kill can take the GPU from others under MPS. A worker that has lost its own GPU ends: it
    would fail every further trial that it is given.
    """
    jobs = [Job.of(job) for job in config["jobs"]]
    reporter, stop = TuneReporter(is_alone=len(jobs) == 1), Path(jobs[0].stop)
    try:
        for _ in interleaved([run_job(job, reporter) for job in jobs], jobs[0].device):
            if jobs[0].stop and stop.exists():
                break
        if jobs[0].device == "cuda":
            torch.cuda.synchronize()
    except GpuLost as error:
        reporter.gpu_lost(error)
        os._exit(1)


class TuneReporter:
    """A `Reporter` for a Tune worker; Tune itself reports the end of a trial that runs alone."""

    def __init__(self, *, is_alone: bool) -> None:
        self._is_alone = is_alone

    @property
    def node(self) -> str:
        return str(ray.get_runtime_context().get_node_id()) if ray.is_initialized() else ""

    def reported(self, job: Job, batch: int, n_batches: int, objective: float) -> None:
        tune.report({FOLDER: job.folder, "batch": batch, "n_batches": n_batches, "objective": objective})

    def noted(self, job: Job, text: str) -> None:
        tune.report({FOLDER: job.folder, NOTE: text})

    def ended(self, job: Job) -> None:
        """Pass on that one of several trials has a result."""
        if not self._is_alone:
            tune.report({FOLDER: job.folder})

    def unwritable(self, cause: str) -> None:
        tune.report({UNWRITABLE: cause})

    def gpu_lost(self, error: GpuLost) -> None:
        """Pass on why this worker is about to end."""
        tune.report({FOLDER: error.job.folder, GPU_FAULT: [str(error), "".join(traceback.format_exception(error))]})

    def gauges(self, **labels: str) -> Gauges:
        return Gauges(**labels)


class _Unsaved:
    """A part of Tune's state that pickles as empty: nobody reads the copies that Tune keeps."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


class TrialEvents(_Unsaved, tune.Callback):
    """Tells a listener of the events that Tune sees."""

    def __init__(self, events: Events) -> None:
        self._events, self._listener = events, events.listener
        self._gpu_faults: dict[str, str] = {}  # of current workers, by Tune's identifier of a trial; with tracebacks

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Pass on that Tune has given the trial a worker."""
        self._gpu_faults.pop(trial.trial_id, None)
        for folder in _left(trial):
            self._listener.started(folder)

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        """Pass on that a trial has published a report or ended, or what its worker says about its files."""
        if UNWRITABLE in result:
            self._events.unwritable(result[UNWRITABLE])
        elif NOTE in result:
            self._listener.noted(_folder(trial, result[FOLDER]), result[NOTE])
        elif GPU_FAULT in result:
            error, told = result[GPU_FAULT]
            cause = f"the GPU can no longer be used ({error})"
            self._gpu_faults[trial.trial_id] = f"{cause}\n{told}"
            self._listener.noted(_folder(trial, result[FOLDER]), cause)
        elif "batch" in result:
            folder = _folder(trial, result[FOLDER])
            self._events.reported(folder, result["batch"], result["n_batches"], result["objective"])
        elif FOLDER in result:
            self._events.ended(_folder(trial, result[FOLDER]))

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Pass on the end of a trial that ran alone; of several side by side, each has reported its own end."""
        folders = folders_of(trial)
        if len(folders) == 1:
            self._events.ended(folders[0])

    def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Pass on that the worker died; another will take over."""
        for folder in _left(trial):
            self._listener.restarted(folder)

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Record that a trial's workers died too often; of several side by side, it is not known whose fault it was."""
        folders = folders_of(trial)
        if len(folders) == 1:
            cause = self._gpu_faults.get(trial.trial_id) or _last_error(trial)
            self._events.failed(folders[0], Trial.of(trial.config["jobs"][0]["trial"]), cause)


class Silence(TrialProgressCallback):
    """A callback that replaces Ray's own lines on trials, some of which appear at every verbosity."""

    def _print(self, msg: str) -> None:
        pass


class StopAll(tune.Stopper):
    """Stops every trial when a study is interrupted, and makes the file that workers look for."""

    def __init__(self, interrupt: Interrupt, stop: Path) -> None:
        self._interrupt, self._stop = interrupt, stop

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Never stop a single trial."""
        return False

    def stop_all(self) -> bool:
        if not self._interrupt.is_set():
            return False
        with suppress(OSError):  # without the file, Tune stops them
            self._stop.touch()
        return True


class RestartedFirst(FIFOScheduler):
    """Gives the next free worker to a trial whose own died: Tune would have it wait behind all the others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """Return a restarted trial that waits, else Tune's choice."""
        waiting = [trial for trial in tune_controller.get_live_trials() if trial.status == TuneTrial.PENDING]
        restarted = (trial for trial in waiting if trial.num_failures)
        return next(restarted, None) or super().choose_trial_to_run(tune_controller)


class Halving(_Unsaved, RestartedFirst):
    """A Tune scheduler that stops some trials early; the worker of a trial waits while that is decided."""

    def __init__(self, stopping: EarlyStopping) -> None:
        super().__init__()
        self._stopping = stopping

    def on_trial_result(self, tune_controller: Any, trial: TuneTrial, result: dict[str, Any]) -> str:
        if "batch" not in result:
            return str(self.CONTINUE)
        (folder,) = folders_of(trial)
        is_stopped = self._stopping.stops(folder, result["batch"], result["n_batches"])
        return str(self.STOP if is_stopped else self.CONTINUE)


class Listed:
    """A `Source` of trials that are known from the start."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = list(trials)
        self._left = iter(self.trials)

    def next(self) -> Trial | None:
        return next(self._left, None)

    def ended(self, key: str) -> None:
        """Do nothing: what comes next does not depend on it."""


class Proposals(_Unsaved, Searcher):
    """Hands Tune a source's trials as it has room for them, `size` of them to a worker.

    The source is asked in Tune's own loop; if it cannot write its files, the study is interrupted.
    """

    def __init__(
        self, source: Source, job_of: Callable[[Trial], dict[str, Any]], interrupt: Interrupt, size: int = 1
    ) -> None:
        super().__init__()
        self._source, self._job_of, self._interrupt, self._size = source, job_of, interrupt, size

    def suggest(self, trial_id: str) -> Any:
        """Return the next jobs, or Tune's marker for none."""
        if self._interrupt.is_set():
            return Searcher.FINISHED
        try:
            group = list(islice(iter(self._source.next, None), self._size))
        except OSError as error:
            self._interrupt.set(StopReason.NO_PROPOSALS, error)
            group = []
        return {"jobs": [self._job_of(trial) for trial in group]} if group else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Do nothing: the source looks at the folders before it proposes."""

    def save(self, checkpoint_path: str) -> None:
        """Do nothing: the state is the source's."""

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, for the same reason."""


@contextmanager
def keys_kept_here() -> Iterator[None]:
    """Keep Tune from sending the driver's keys of object stores to workers: every node logs what a worker is sent.

    Workers have the keys of their node, or of the driver that has started Ray.
    """
    sent = class_cache.ENV_VARS_TO_PROPAGATE
    class_cache.ENV_VARS_TO_PROPAGATE = {name for name in sent if not name.startswith("AWS_")}
    try:
        yield
    finally:
        class_cache.ENV_VARS_TO_PROPAGATE = sent


@contextmanager
def kills_as_deaths_of_workers() -> Iterator[None]:
    """Patch Tune to take two more errors for the death of a worker: the trial starts again, and the study goes on.

    Ray raises them for a worker that its memory monitor killed and for one whose node is gone. Tune knows neither.
    """
    failed: Any = RayActorManager._actor_task_failed

    def with_deaths(manager: Any, tracked_actor_task: Any, exception: Exception) -> None:
        if isinstance(exception, OutOfMemoryError | NodeDiedError):
            exception = RayActorError(error_msg=str(exception))
        failed(manager, tracked_actor_task, exception)

    RayActorManager._actor_task_failed = with_deaths  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        RayActorManager._actor_task_failed = failed  # type: ignore[method-assign]


def folders_of(trial: TuneTrial) -> list[TrialFolder]:
    """Return the folders of the trials that a worker trains side by side, which to Tune are one."""
    return [folder_of(job) for job in trial.config["jobs"]]


def _last_error(trial: TuneTrial) -> str:
    """Return what Tune has noted here of a trial's last failure: its own `get_error` looks where no copy is yet."""
    path = trial.error_file
    noted = Path(path).read_text() if path and Path(path).exists() else ""
    return noted.rpartition("(occurred at ")[2].partition("\n")[2].strip() or "unknown"


def _left(trial: TuneTrial) -> list[TrialFolder]:
    return [folder for folder in folders_of(trial) if folder.result() is None]


def _folder(trial: TuneTrial, path: str) -> TrialFolder:
    return next(folder for folder in folders_of(trial) if str(folder.path) == path)
