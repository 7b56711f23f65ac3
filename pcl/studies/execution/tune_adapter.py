"""Between Tune's interfaces and ours: events of trials, and the wish to stop."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from pcl.config.failure import Failure, FailureKind
from pcl.studies.execution.interfaces import Listener, Source
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.worker import FOLDER, NOTE, UNWRITABLE, folder_of
from pcl.studies.ledger.folders import Result, Status, TrialFolder
from pcl.studies.space.trial import Trial


class Events(tune.Callback):
    """Tells a listener of trials' events, and ends the study where a trial's files cannot be written."""

    def __init__(self, listener: Listener, interrupt: Interrupt) -> None:
        self._listener, self._interrupt = listener, interrupt
        self._has_failed = False

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Tune has given the trial a worker."""
        for folder in _left(trial):
            self._listener.started(folder)

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        """A trial has published a report or has ended, or its worker says what happened to its files."""
        if UNWRITABLE in result:
            self._interrupt.set(f"a trial's files cannot be written ({result[UNWRITABLE]})")
        elif NOTE in result:
            self._listener.noted(_folder(trial, result[FOLDER]), result[NOTE])
        elif "batch" in result:
            folder = _folder(trial, result[FOLDER])
            with self._using_files():
                self._see(folder)
                self._listener.reported(folder, result["batch"], result["n_batches"], result["objective"])
        elif FOLDER in result:
            self._end(_folder(trial, result[FOLDER]))

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """The trainable has returned, or the trial was stopped; of several side by side, each has told its end."""
        folders = folders_of(trial)
        if len(folders) == 1:
            self._end(folders[0])

    def _end(self, folder: TrialFolder) -> None:
        with self._using_files():
            self._see(folder)
            if folder.result() is not None:
                self._listener.ended(folder)

    def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """The worker died; another will go on."""
        for folder in _left(trial):
            self._listener.restarted(folder)

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Workers died too often; of several trials side by side it is not known whose fault it was."""
        folders = folders_of(trial)
        if len(folders) > 1:
            return
        folder = folders[0]
        with self._using_files():
            self._see(folder)
            if folder.result() is None:
                error = trial.get_error()
                told = (str(error).strip() or type(error).__name__) if error else "unknown"
                folder.begin(Trial.of(trial.config["jobs"][0]["trial"]))  # no worker may have come so far
                folder.close(Result(Status.FAILED, Failure(FailureKind.WORKER_DIED, told.splitlines()[0]), told))
            self._listener.ended(folder)

    def _see(self, folder: TrialFolder) -> None:
        """Pull a trial's files, unless that has failed before: a store that is away keeps one waiting for a minute."""
        if not self._has_failed:
            folder.pull()

    @contextmanager
    def _using_files(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._has_failed = True
            self._interrupt.set(f"a trial's files cannot be used ({error})")

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune keeps a copy of its callbacks with the state that we do not use."""
        return {}


class Silence(TrialProgressCallback):
    """In place of Ray's own lines on trials, some of which come at every verbosity."""

    def _print(self, msg: str) -> None:
        pass


class StopAll(tune.Stopper):
    """Stops every trial when a study is interrupted."""

    def __init__(self, interrupt: Interrupt) -> None:
        self._interrupt = interrupt

    def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
        """Whether to stop a single trial: never."""
        return False

    def stop_all(self) -> bool:
        """Whether to stop."""
        return self._interrupt.is_set()


class RestartedFirst(FIFOScheduler):
    """Gives the next free worker to a trial whose own died: Tune would have it wait behind all the others."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def choose_trial_to_run(self, tune_controller: Any) -> TuneTrial | None:
        """One that waits."""
        waiting = [trial for trial in tune_controller.get_live_trials() if trial.status == TuneTrial.PENDING]
        restarted = (trial for trial in waiting if trial.num_failures)
        return next(restarted, None) or super().choose_trial_to_run(tune_controller)


class Listed:
    """A `Source` of trials that are known from the start."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        self.trials = list(trials)
        self._left = iter(self.trials)

    def next(self) -> Trial | None:
        """The next in the list."""
        return next(self._left, None)

    def ended(self, key: str) -> None:
        """Nothing: what comes next does not depend on it."""


class Proposals(Searcher):
    """Hands Tune a source's trials as it has room for them.

    Args:
        source: Asked in Tune's own loop.
        job_of: What a worker is sent for a trial.
        interrupt: Set where the source cannot write its files.
        size: Trials for one worker, side by side.
    """

    def __init__(
        self, source: Source, job_of: Callable[[Trial], dict[str, Any]], interrupt: Interrupt, size: int = 1
    ) -> None:
        super().__init__()
        self._source, self._job_of, self._interrupt, self._size = source, job_of, interrupt, size

    def suggest(self, trial_id: str) -> Any:
        """The next jobs, or Tune's word for that there are none."""
        if self._interrupt.is_set():
            return Searcher.FINISHED
        try:
            group = list(islice(iter(self._source.next, None), self._size))
        except OSError as error:
            self._interrupt.set(str(error))
            group = []
        return {"jobs": [self._job_of(trial) for trial in group]} if group else Searcher.FINISHED

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Nothing: the source looks at the folders before it proposes."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the state is the source's."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, for the same reason."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune keeps a copy with the state that we do not use."""
        return {}


def folders_of(trial: TuneTrial) -> list[TrialFolder]:
    """Of the trials that a worker trains side by side, which to Tune are one."""
    return [folder_of(job) for job in trial.config["jobs"]]


def _left(trial: TuneTrial) -> list[TrialFolder]:
    return [folder for folder in folders_of(trial) if folder.result() is None]


def _folder(trial: TuneTrial, path: str) -> TrialFolder:
    return next(folder for folder in folders_of(trial) if str(folder.path) == path)
