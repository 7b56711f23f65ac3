"""Between Tune's interfaces and ours: events of trials, and the wish to stop."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ray import tune
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.search import Searcher

from pcl.studies.ledger import Result, Status, Trial, TrialFolder
from pcl.studies.runner import Interrupt, Listener, Source
from pcl.studies.trainable import UNWRITABLE, folder_of


class Events(tune.Callback):
    """Tells a listener of trials' events, and ends the study where a trial's files cannot be written."""

    def __init__(self, listener: Listener, interrupt: Interrupt) -> None:
        self._listener, self._interrupt = listener, interrupt
        self._has_failed = False

    def on_trial_start(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Tune has given the trial a worker."""
        self._listener.started(_folder(trial))

    def on_trial_result(
        self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, result: dict[str, Any], **info: Any
    ) -> None:
        """The trial has published a report, or its worker says that it cannot."""
        if UNWRITABLE in result:
            self._interrupt.set(f"a trial's files cannot be written ({result[UNWRITABLE]})")
        elif "batch" in result:
            folder = _folder(trial)
            with self._using_files():
                self._see(folder)
                self._listener.reported(folder, result["batch"], result["n_batches"], result["objective"])

    def on_trial_complete(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """The trainable has returned, or the trial was stopped."""
        folder = _folder(trial)
        with self._using_files():
            self._see(folder)
            if folder.result() is not None:
                self._listener.ended(folder)

    def on_trial_recover(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """The worker died; another will go on."""
        self._listener.restarted(_folder(trial))

    def on_trial_error(self, iteration: int, trials: list[TuneTrial], trial: TuneTrial, **info: Any) -> None:
        """Workers died too often."""
        folder = _folder(trial)
        with self._using_files():
            self._see(folder)
            if folder.result() is None:
                error = trial.get_error()
                told = (str(error).strip() or type(error).__name__) if error else "unknown"
                folder.begin(Trial.of(trial.config["job"]["trial"]))  # no worker may have come so far
                folder.close(Result(Status.FAILED, f"worker died: {told.splitlines()[0]}", told))
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


class Proposals(Searcher):
    """Hands Tune a source's trials, one for each free place.

    Args:
        source: Asked in Tune's own loop.
        job_of: What a worker is sent for a trial.
        interrupt: Set where the source cannot write its files.
    """

    def __init__(self, source: Source, job_of: Callable[[Trial], dict[str, Any]], interrupt: Interrupt) -> None:
        super().__init__()
        self._source, self._job_of, self._interrupt = source, job_of, interrupt

    def suggest(self, trial_id: str) -> Any:
        """The next job, or Tune's word for that there is none."""
        if self._interrupt.is_set():
            return Searcher.FINISHED
        try:
            trial = self._source.next()
        except OSError as error:
            self._interrupt.set(str(error))
            trial = None
        return Searcher.FINISHED if trial is None else {"job": self._job_of(trial)}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """Nothing: the source looks at the folders before it proposes."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the state is the source's."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing, for the same reason."""

    def __getstate__(self) -> dict[str, Any]:
        """Nothing: Tune keeps a copy with the state that we do not use."""
        return {}


def _folder(trial: TuneTrial) -> TrialFolder:
    return folder_of(trial.config["job"])
