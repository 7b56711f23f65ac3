"""What Tune is told: which trials to run, and in what order."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray import tune
from ray.air.execution._internal.actor_manager import RayActorManager
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError
from ray.tune.execution import class_cache
from ray.tune.experiment import Trial as TuneTrial
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.search import Searcher
from ray.tune.utils.callback import _create_default_callbacks

from pcl.studies.cluster import session as ray_session
from pcl.studies.execution import ray_runner, tune_adapter
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.execution.ray_runner import RayRunner
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.runner import Assignment
from pcl.studies.execution.tune_adapter import (
    FOLDER,
    GPU_FAULT,
    Listed,
    Proposals,
    RestartedFirst,
    Silence,
    keys_kept_here,
    kills_as_deaths_of_workers,
)
from pcl.studies.execution.worker import GpuLost, Job
from pcl.studies.ledger.folders import SCRATCH, StudyFolder
from pcl.studies.session.site import machine
from pcl.studies.space.trial import Trial


def waiting(name: str, n_failures: int = 0, status: str = TuneTrial.PENDING) -> Any:
    return SimpleNamespace(name=name, num_failures=n_failures, status=status)


def chosen(*trials: Any) -> str | None:
    controller = SimpleNamespace(get_trials=lambda: list(trials), get_live_trials=lambda: list(trials))
    found = RestartedFirst().choose_trial_to_run(controller)
    return found.name if found else None  # type: ignore[attr-defined]


def test_a_trial_that_lost_its_worker_is_the_next() -> None:
    running = waiting("running", 1, TuneTrial.RUNNING)
    assert chosen(running) is None
    assert chosen(running, waiting("first"), waiting("second")) == "first"
    assert chosen(running, waiting("first"), waiting("second"), waiting("moved", 1)) == "moved"


def trials(n_trials: int) -> list[Trial]:
    return [Trial({"x": index}, (1,), "grid") for index in range(n_trials)]


def proposed(n_trials: int, size: int, interrupt: Interrupt) -> Proposals:
    return Proposals(Listed(trials(n_trials)), lambda trial: {"x": trial.config["x"]}, interrupt, size)


def test_a_list_is_handed_out_in_groups_and_in_order() -> None:
    proposals = proposed(5, 2, Interrupt())
    groups = [[job["x"] for job in proposals.suggest(str(i))["jobs"]] for i in range(3)]
    assert groups == [[0, 1], [2, 3], [4]]
    assert proposals.suggest("3") == Searcher.FINISHED
    assert proposed(0, 1, Interrupt()).suggest("0") == Searcher.FINISHED


def test_nothing_more_is_handed_out_once_interrupted() -> None:
    interrupt = Interrupt()
    proposals = proposed(5, 1, interrupt)
    assert proposals.suggest("0") == {"jobs": [{"x": 0}]}
    interrupt.set(StopReason.SIGNAL)
    assert proposals.suggest("1") == Searcher.FINISHED


def test_a_worker_without_a_gpu_says_so_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(job: Job, reporter: Any) -> Iterator[None]:
        yield None
        if job.folder == jobs[1].folder:
            raise GpuLost(job, RuntimeError("CUDA error: unspecified launch failure\nin detail"))

    told: list[Any] = []
    monkeypatch.setattr(tune_adapter, "run_job", lost)
    monkeypatch.setattr(tune, "report", told.append)
    monkeypatch.setattr(os, "_exit", told.append)
    jobs = [Job(trial, str(tmp_path / trial.key), "x") for trial in trials(3)]
    tune_adapter.run_jobs({"jobs": [job.as_config() for job in jobs]})
    report, code = told
    assert report[FOLDER] == jobs[1].folder
    assert report[GPU_FAULT][0] == "CUDA error: unspecified launch failure"
    assert report[GPU_FAULT][1].startswith("Traceback (most recent call last):")
    assert code == 1


class Ended:
    def __init__(self) -> None:
        self.last_result: dict[str, Any] = {}


@pytest.mark.parametrize(("given", "n_lines"), [(TrialProgressCallback(), 1), (Silence(), 0)])
def test_ray_says_nothing_of_a_trial_that_ended_without_a_report(
    given: TrialProgressCallback, n_lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    saying = [one for one in _create_default_callbacks([given]) if isinstance(one, TrialProgressCallback)]
    assert saying == [given]
    given.on_trial_complete(1, [], Ended())
    assert len(capsys.readouterr().out.splitlines()) == n_lines


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return what Tune is given, which runs nothing."""
    given: dict[str, Any] = {}

    def tuner(trainable: Any, **options: Any) -> Any:
        given.update(options)
        return SimpleNamespace(fit=given.get("fit", lambda: None))

    monkeypatch.setattr(tune, "Tuner", tuner)
    monkeypatch.setattr(ray_runner, "available_resources", lambda: {"CPU": 1.0})
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(gcs_address="127.0.0.1:1"))
    monkeypatch.setenv("TUNE_MAX_PENDING_TRIALS_PG", "")  # which it sets
    return given


def fit(study: Path, interrupt: Interrupt, *trials: Trial) -> None:
    nobody: Any = SimpleNamespace()
    assignment = Assignment(StudyFolder(study), "x", nobody, interrupt)
    RayRunner(Resources(), lambda job: None)._fit(Listed(trials), assignment, 1, 0)


def test_a_study_runs_in_silence(tmp_path: Path, given: dict[str, Any]) -> None:
    fit(tmp_path, Interrupt())
    assert sum(isinstance(callback, Silence) for callback in given["run_config"].callbacks) == 1


def test_workers_see_at_their_next_pause_that_their_own_driver_stops(
    tmp_path: Path, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is there from the interruption until Tune has ended."""
    interrupt, pauses = Interrupt(), []

    def long(job: Job, reporter: Any) -> Iterator[None]:
        while len(pauses) < 100:
            pauses.append(job.folder)
            if len(pauses) == 6:
                assert not given["run_config"].stop.stop_all()
                interrupt.set(StopReason.SIGNAL)
                assert given["run_config"].stop.stop_all()
            yield None

    def train() -> None:
        (tmp_path / SCRATCH).mkdir()
        suggest = given["tune_config"].search_alg.suggest
        tune_adapter.run_jobs({"jobs": [*suggest("a")["jobs"], *suggest("b")["jobs"]]})
        assert len(list((tmp_path / SCRATCH).iterdir())) == 1

    monkeypatch.setattr(tune_adapter, "run_job", long)
    given["fit"] = train
    fit(tmp_path, interrupt, *trials(2))
    assert len(pauses) == 6
    assert len(set(pauses)) == 2  # trained side by side
    assert not list((tmp_path / SCRATCH).iterdir())


@pytest.mark.parametrize(
    ("found", "wanted", "is_asked"), [("somewhere", "1", True), ("somewhere", "0", False), (None, "1", False)]
)
def test_ray_is_asked_for_the_dashboard_that_is_wanted_and_can_be_had(
    found: str | None, wanted: str, is_asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ray_session.DASHBOARD, wanted)
    monkeypatch.setattr(ray_session, "find_spec", lambda _: found)
    asked = asked_of_ray(monkeypatch)
    assert asked["include_dashboard"] is is_asked
    assert asked["dashboard_host"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("mine", "limit", "n_cores"),
    [({0, 2, 3}, None, 3), (set(range(8)), "max 100000", 8), (set(range(8)), "250000 100000", 2), ({1}, "5 100", 1)],
)
def test_ray_is_told_how_many_cores_are_ours(
    mine: set[int], limit: str | None, n_cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: mine)
    monkeypatch.setattr(ray_session, "_CPU_LIMIT", tmp_path / "cpu.max")
    if limit:
        (tmp_path / "cpu.max").write_text(f"{limit}\n")
    assert asked_of_ray(monkeypatch)["num_cpus"] == n_cores
    assert machine.__wrapped__()["CPU"] == n_cores


def test_workers_are_sent_no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each node writes what a worker is sent to a log."""
    sent: dict[str, str] = {}

    def remote(runtime_env: dict[str, dict[str, str]]) -> Any:
        sent.update(runtime_env["env_vars"])
        return lambda trainable: trainable

    monkeypatch.setattr(class_cache, "ENV_VARS_TO_PROPAGATE", class_cache.ENV_VARS_TO_PROPAGATE)  # put back at the end
    monkeypatch.setattr("ray.remote", remote)
    monkeypatch.setenv("RAY_CHDIR_TO_TRIAL_DIR", "0")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "secret")
    with keys_kept_here():
        class_cache._ActorClassCache().get(type("Trainable", (), {}))
    assert sent["RAY_CHDIR_TO_TRIAL_DIR"] == "0"
    assert "secret" not in sent.values()


@pytest.mark.parametrize("error", [OutOfMemoryError("22 of 23 GB used"), NodeDiedError("22 of 23 GB used")])
def test_tune_takes_a_worker_that_ray_killed_for_dead(error: Exception) -> None:
    """Left to itself it raises, which ends the study."""
    told: list[Exception] = []
    actor = SimpleNamespace(actor_id=1, _on_error=lambda actor, error: told.append(error))
    task: Any = SimpleNamespace(_tracked_actor=actor, _on_error=None)
    manager: Any = SimpleNamespace(_failed_actor_ids=set(), _cleanup_actor=lambda tracked_actor: None)
    with pytest.raises(RuntimeError, match="unexpected exception"):
        RayActorManager._actor_task_failed(manager, tracked_actor_task=task, exception=error)
    with kills_as_deaths_of_workers():
        RayActorManager._actor_task_failed(manager, tracked_actor_task=task, exception=error)
    assert [(type(one), str(one)) for one in told] == [(RayActorError, "22 of 23 GB used")]
    assert manager._failed_actor_ids == {1}


def asked_of_ray(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a Ray that is started here is started with."""
    asked: dict[str, Any] = {}
    monkeypatch.setattr(ray_session, "own_token", lambda: None)
    monkeypatch.setattr(ray_session, "_ENVIRONMENT", {})
    monkeypatch.setattr("ray.init", lambda **options: asked.update(options) or SimpleNamespace(dashboard_url=""))
    monkeypatch.setattr("ray.shutdown", lambda: None)
    with ray_session.ray_cluster(None) as dashboard:
        assert dashboard == ""
    return asked
