"""Tune's events as a listener is told them: starts, reports, lost workers, ends and failures, of one trial or two."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.tune.experiment import Trial as TuneTrial

from pcl.config.failure import FailureKind
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.runner import Events
from pcl.studies.execution.tune_adapter import FOLDER, GPU_FAULT, NOTE, UNWRITABLE, TrialEvents
from pcl.studies.execution.worker import Job
from pcl.studies.ledger.folders import Result, Status, TrialFolder
from pcl.studies.space.trial import Trial


class Heard:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda folder, *more: self.told.append((name, folder.key, *more))


class Seen:
    """Events of a worker of Tune that trains some trials side by side."""

    def __init__(self, folder: Path, n_trials: int) -> None:
        trials = [Trial({"x": index}, (1,), "grid") for index in range(n_trials)]
        self.folders = [TrialFolder(folder / trial.key) for trial in trials]
        for own, trial in zip(self.folders, trials, strict=True):
            own.begin(trial)
        self.keys = [trial.key for trial in trials]
        jobs = [Job(trial, str(own.path), "x").as_config() for trial, own in zip(trials, self.folders, strict=True)]
        self.trial: Any = SimpleNamespace(
            config={"jobs": jobs}, trial_id="a1", is_restoring=False, local_path=str(folder),
            error_file=str(folder / "error.txt"),
            run_metadata=SimpleNamespace(num_failures=0, invalidate_cache=lambda: None),
        )  # fmt: skip
        self.listener, self.interrupt = Heard(), Interrupt()
        self._events = TrialEvents(Events(self.listener, self.interrupt))

    def sees(self, event: str, **result: Any) -> list[tuple[Any, ...]]:
        """Return what the listener is told of an event."""
        self.listener.told.clear()
        given = {"result": result} if result else {}
        getattr(self._events, f"on_trial_{event}")(0, [self.trial], self.trial, **given)
        return self.listener.told

    def fail(self, error: Exception) -> None:
        """Have Tune itself note an error."""
        TuneTrial.handle_error(self.trial, error)  # type: ignore[arg-type]

    def end(self, index: int) -> None:
        self.folders[index].close(Result(Status.FINISHED))


@pytest.fixture
def alone(tmp_path: Path) -> Seen:
    return Seen(tmp_path, 1)


@pytest.fixture
def pair(tmp_path: Path) -> Seen:
    return Seen(tmp_path, 2)


def test_the_life_of_a_trial(alone: Seen) -> None:
    (key,) = alone.keys
    path = str(alone.folders[0].path)
    assert alone.sees("start") == [("started", key)]
    report = {FOLDER: path, "batch": 4, "n_batches": 8, "objective": 0.5}
    assert alone.sees("result", **report) == [("reported", key, 4, 8, 0.5)]
    assert alone.sees("result", **{FOLDER: path, NOTE: "a torn file"}) == [("noted", key, "a torn file")]
    assert alone.sees("result", training_iteration=1) == []  # Tune's own, at the end
    assert alone.sees("recover") == [("restarted", key)]
    alone.end(0)
    assert alone.sees("complete") == [("ended", key)]


def test_of_several_only_those_without_a_result_start_again(pair: Seen) -> None:
    pair.end(0)
    assert pair.sees("start") == [("started", pair.keys[1])]
    assert pair.sees("recover") == [("restarted", pair.keys[1])]
    assert pair.sees("result", **{FOLDER: str(pair.folders[0].path)}) == [("ended", pair.keys[0])]
    assert pair.sees("complete") == []  # each has told its end


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (RuntimeError("low on memory\nin detail"), "died: low on memory"),
        (KeyError(), "unknown"),
        (None, "unknown"),
    ],
)
def test_a_trial_whose_workers_die_has_failed(alone: Seen, error: Exception | None, cause: str) -> None:
    if error is not None:
        alone.fail(RuntimeError("an earlier one"))
        alone.fail(error)
    assert alone.sees("error") == [("ended", alone.keys[0])]
    result = alone.folders[0].result()
    assert result is not None
    assert result.failure is not None
    assert (result.status, result.failure.kind) == (Status.FAILED, FailureKind.WORKER_DIED)
    assert cause in str(result.failure)
    assert "earlier" not in result.traceback
    assert ("in detail" in result.traceback) == ("memory" in cause)


@pytest.mark.parametrize("is_gpus_fault", [True, False])
def test_the_last_worker_tells_why_a_trial_has_failed(alone: Seen, is_gpus_fault: bool) -> None:
    (key,), path = alone.keys, str(alone.folders[0].path)
    told = "the GPU can no longer be used (CUDA error: unspecified launch failure)"
    fault = {FOLDER: path, GPU_FAULT: ["CUDA error: unspecified launch failure", "Traceback of it"]}
    alone.sees("start")
    assert alone.sees("result", **fault) == [("noted", key, told)]
    assert alone.sees("recover") == [("restarted", key)]
    alone.sees("start")
    if is_gpus_fault:
        alone.sees("result", **fault)
    alone.fail(RuntimeError("low on memory"))
    assert alone.sees("error") == [("ended", key)]
    result = alone.folders[0].result()
    assert result is not None
    assert result.failure is not None
    assert result.failure.kind is FailureKind.WORKER_DIED
    assert (told in result.cause) is is_gpus_fault
    assert ("Traceback of it" in result.traceback) is is_gpus_fault
    assert ("low on memory" in result.cause) is not is_gpus_fault


def test_of_several_it_is_not_known_whose_fault_it_was(pair: Seen) -> None:
    pair.fail(RuntimeError("the worker died"))
    assert pair.sees("error") == []
    assert [folder.result() for folder in pair.folders] == [None, None]


def test_files_that_cannot_be_written_end_the_study(alone: Seen) -> None:
    assert alone.sees("result", **{UNWRITABLE: "no space left on device"}) == []
    assert alone.interrupt.stop is not None
    assert "no space left on device" in str(alone.interrupt.stop)
