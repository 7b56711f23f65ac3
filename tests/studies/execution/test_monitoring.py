"""What Ray's monitoring is told; Ray itself is not needed."""

import math
import time
from pathlib import Path
from typing import Any

import pytest

from launch.testbed.processes import wait_for
from pcl.config.failure import Failure, FailureKind
from pcl.studies.execution import monitoring
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.monitoring import (
    GPU_MEMORY,
    KAPPA_MEAN,
    MEASURES,
    OBJECTIVE,
    SHARE_DONE,
    TRIALS,
    Gauges,
    Measure,
)
from pcl.studies.execution.progress import Progress
from pcl.studies.execution.worker import Job
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.results.selection import Outcome
from pcl.studies.space.search_space import Mode, Objective
from pcl.studies.space.trial import Trial
from tests.support.reporting import run_jobs
from tests.support.smoke import smoke

METRIC = "eval/kappa_rank_corr"
Told = list[tuple[str, float, dict[str, str]]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """Everything that Ray is told."""
    found: Told = []

    class Recorded:
        def __init__(self, measure: Measure) -> None:
            self.measure = measure

        def set(self, value: float, tags: dict[str, str]) -> None:
            assert tuple(tags) == self.measure.labels
            found.append((self.measure.name, value, tags))

    monkeypatch.setattr(monitoring, "_gauge", Recorded)
    return found


def test_labels_are_few_and_bounded() -> None:
    assert {label for measure in MEASURES for label in measure.labels} == {"study", "stage", "loss", "metric", "state"}
    assert len({measure.name for measure in MEASURES}) == len(MEASURES)


def test_values_are_told_again_until_the_end(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray exports a value once."""
    monkeypatch.setattr(monitoring, "_HEARTBEAT_S", 0.01)
    with Gauges(study="Prüfung", stage="grid", loss="hib") as gauges:
        gauges.set(KAPPA_MEAN, 3.0)
        labels = {"study": "Pr\\xfcfung", "stage": "grid", "loss": "hib"}  # Ray takes no other letters
        assert told[0] == ("pcl_kappa_mean", 3.0, labels)
        wait_for(lambda: told.count(told[0]) > 3, "it is told again and again")
        gauges.set(KAPPA_MEAN, math.nan)
        n_told = len(told)
        time.sleep(0.1)
        assert len(told) == n_told
        gauges.set(KAPPA_MEAN, 5.0)
    n_told = len(told)
    assert told[-1][1] == 5.0
    time.sleep(0.1)
    assert len(told) == n_told


def test_a_gauge_that_fails_is_no_ones_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def broken(measure: Measure) -> None:
        asked.append(measure)
        raise RuntimeError(measure.name)

    monkeypatch.setattr(monitoring, "_gauge", broken)
    monkeypatch.setattr(monitoring, "_HEARTBEAT_S", 0.01)
    with Gauges(study="s", stage="grid", loss="hib") as gauges:
        gauges.set(GPU_MEMORY, 0)
        wait_for(lambda: len(asked) > 2, "it has failed in the thread too")
        gauges.set(GPU_MEMORY, 1)
    assert not gauges._thread.is_alive()


def test_a_trial_publishes_what_it_reports(told: Told, tmp_path: Path) -> None:
    trial = Trial(smoke().flat(), (1, 2), "grid")
    folder = StudyFolder(tmp_path / "study").trial(trial.key)
    folder.path.parents[1].mkdir()
    run_jobs([Job(trial, str(folder.path), METRIC)])
    result = folder.result()
    assert result is not None
    assert result.status is Status.FINISHED, result.traceback

    rows = folder.rows()
    assert len(rows) == 2
    shared = {"study": "study", "stage": "grid", "loss": "mc_info_nce"}
    for measure, values in {
        KAPPA_MEAN: [row.metrics["eval/kappa_mean"] for row in rows],
        OBJECTIVE: [row.metrics[METRIC] for row in rows],
        SHARE_DONE: [row.batch / row.n_batches for row in rows],
        GPU_MEMORY: [0.0, 0.0],
        monitoring.MS_PER_BATCH: [row.metrics["time/ms_per_batch"] for row in rows],
    }.items():
        found = [(value, labels) for name, value, labels in told if name == measure.name]
        assert list(dict.fromkeys(value for value, _ in found)) == list(dict.fromkeys(values)), measure
        assert all(labels in ({**shared, "metric": METRIC}, shared) for _, labels in found)


class _NoRecorder:
    def submit(self, _: Any) -> None:
        pass


def test_a_driver_publishes_trials_by_state(told: Told, tmp_path: Path) -> None:
    config = smoke().flat()
    trials = [Trial(config, (seed,), "grid") for seed in range(4)]
    folders = [StudyFolder(tmp_path / "study").trial(trial.key) for trial in trials]
    for trial, folder in zip(trials, folders, strict=True):
        folder.begin(trial)
    done = Outcome(trials[0], Result(Status.FINISHED), {0: {METRIC: 0.25}})

    def states() -> dict[str, float]:
        """The last value of each."""
        return {labels["state"]: value for name, value, labels in told if name == TRIALS.name}

    def last(name: str) -> float:
        return [value for other, value, _ in told if other == name][-1]

    objective = Objective(METRIC, Mode.MAX)
    with (
        Gauges(study="study", stage="grid", metric=METRIC) as gauges,
        Progress(
            trials, 4, [done], objective, _NoRecorder(), Interrupt(), False, lambda _: None, gauges,  # type: ignore[arg-type]
        ) as progress,
    ):  # fmt: skip
        assert states() == {"waiting": 3, "running": 0, "finished": 1, "stopped": 0, "failed": 0}
        assert (last("pcl_best_objective"), last("pcl_worker_deaths")) == (0.25, 0)
        progress.started(folders[1])
        progress.started(folders[2])
        progress.restarted(folders[2])
        assert states() == {"waiting": 2, "running": 1, "finished": 1, "stopped": 0, "failed": 0}
        assert last("pcl_worker_deaths") == 1
        folders[2].close(Result(Status.FAILED, Failure(FailureKind.ERROR, "no reason")))
        progress.ended(folders[2])
        assert states() == {"waiting": 1, "running": 1, "finished": 1, "stopped": 0, "failed": 1}
