"""Tracking against real MLflow: a real sqlite database, and a real server that is killed and comes back."""

import contextlib
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pcl.config import RunConfig
from pcl.studies.figures import scatter
from pcl.studies.ledger import Result, Row, Status, Trial, TrialFolder
from pcl.studies.mlflow_store import Store
from pcl.studies.recorder import Recorder
from pcl.studies.tracking import End, StoreError, StudyTags, Tracker, default_uri, shown_uri, tracking_uri

TAGS = StudyTags("toy_x", "smoke", "paper", "eval/kappa_rank_corr", "toy", "c0ffee", "10c4", "a laptop")


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One database for all: a new one takes two seconds, and studies share a store."""
    return default_uri(tmp_path_factory.mktemp("runs"))


def make_trial(tmp_path: Path, seeds: tuple[int, ...] = (1,), n_samples: int = 4, stage: str = "grid") -> TrialFolder:
    config = RunConfig.of({"loss.n_samples": n_samples}, scale="smoke").flat()
    trial = Trial(config, seeds, stage, {"loss.n_samples": n_samples})
    folder = TrialFolder(tmp_path / "trials" / trial.key)
    folder.begin(trial)
    return folder


def report(folder: TrialFolder, *batches: int, bad: float = 0.5, failures: dict[int, str] | None = None) -> None:
    """Publish reports whose metrics tell seed and batch."""
    for batch in batches:
        by_seed = {
            seed: {"eval/kappa_rank_corr": seed / 10 + batch / 1000, "train/loss": float(batch), "eval/bad": bad}
            for seed in folder.trial().seeds
        }
        folder.publish(Row(batch, 8, time.time_ns() // 1_000_000, 0.1, by_seed, failures or {}), folder.claim())


def end(folder: TrialFolder, cause: str = "", traceback: str = "") -> None:
    folder.close(Result(Status.FAILED if cause else Status.FINISHED, cause, traceback, hardware="a GPU"))


def opened(uri: str, name: str, tags: StudyTags = TAGS) -> Tracker:
    tracker = Tracker(uri)
    tracker.open_study(name, tags)
    return tracker


def runs_of(tracker: Tracker, study: str, kind: str) -> list[Any]:
    store = tracker.store
    return store.find(store.experiments("pcl/"), {"pcl.study": study, "pcl.kind": kind})


def steps_of(tracker: Tracker, run: Any, metric: str = "train/loss") -> list[int]:
    history = tracker.store.call(lambda client: client.get_metric_history(run.info.run_id, metric))
    return [point.step for point in history]


def artifact(tracker: Tracker, run: Any, name: str, tmp_path: Path) -> str:
    found = tracker.store.call(lambda client: client.download_artifacts(run.info.run_id, name, str(tmp_path)))
    return Path(found).read_text()


def test_a_trial_is_recorded_once_however_often_and_by_whom_it_is_synced(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    report(folder, 4)
    first = opened(uri, "once")
    for _ in range(2):
        first.sync(folder)
    report(folder, 8, bad=math.nan)
    first.sync(folder)
    report(folder, 12)
    end(folder)
    for _ in range(2):  # as after a crash: nothing is known but what the store has
        second = opened(uri, "once")
        second.sync(folder)
        second.sync(folder)
    assert [run.info.run_id for run in runs_of(second, "once", "study")] == [second.open_study("once", TAGS)]
    (run,) = runs_of(second, "once", "trial")
    assert second.run_id(folder) == run.info.run_id
    assert run.info.status == "FINISHED"
    assert steps_of(second, run) == [4, 8, 12]
    assert len(steps_of(second, run, "eval/bad")) == 3
    assert steps_of(second, run, "objective") == [12]
    assert run.data.metrics["objective"] == pytest.approx(0.112)
    assert "objective_se" not in run.data.metrics
    assert run.data.params == {**{k: str(v) for k, v in folder.trial().config.items()}, "seeds": "1"}
    expected = {
        "pcl.study": "once", "pcl.kind": "trial", "pcl.trial": folder.key, "pcl.stage": "grid", "pcl.seed": "1",
        "pcl.space": "toy_x", "pcl.scale": "smoke", "pcl.fidelity": "paper", "pcl.data": "toy", "pcl.commit": "c0ffee",
        "pcl.lock": "10c4", "pcl.hardware": "a GPU", "mlflow.runName": "n_samples=4",
    }  # fmt: skip
    assert expected.items() <= run.data.tags.items()
    config = yaml.safe_load(artifact(second, run, "config.yaml", tmp_path))
    assert RunConfig.from_flat(config) == folder.trial().run_config


def test_several_seeds_have_runs_of_their_own(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path, seeds=(1, 2, 3))
    report(folder, 4)
    report(folder, 8, failures={2: "kappa ran away"})
    end(folder)
    tracker = opened(uri, "seeds")
    tracker.sync(folder)
    (run,) = runs_of(tracker, "seeds", "trial")
    assert run.data.params["seeds"] == "1,2,3"
    assert run.data.metrics["objective"] == pytest.approx(0.208)  # seeds 1 and 3
    assert run.data.metrics["objective_se"] == pytest.approx(0.1)
    seeds = runs_of(tracker, "seeds", "seed")
    assert [seed.data.tags["pcl.seed"] for seed in seeds] == ["1", "2", "3"]
    assert {seed.data.tags["mlflow.parentRunId"] for seed in seeds} == {run.info.run_id}
    assert [seed.info.status for seed in seeds] == ["FINISHED", "FAILED", "FINISHED"]
    assert seeds[1].data.tags["pcl.cause"] == "kappa ran away"
    assert all(steps_of(tracker, seed) == [4, 8] for seed in seeds)
    assert seeds[2].data.metrics["eval/kappa_rank_corr"] == pytest.approx(0.308)
    found = tracker.finished(folder.key)
    assert found is not None
    assert found.by_seed == folder.rows()[-1].by_seed
    assert found.failures == {2: "kappa ran away"}


def test_not_a_number_and_infinity(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path, n_samples=41)
    report(folder, 4, bad=math.inf)
    report(folder, 8, bad=math.nan)
    report(folder, 12, bad=-math.inf)
    for _ in range(2):
        tracker = opened(uri, "nan")
        tracker.sync(folder)
    (run,) = runs_of(tracker, "nan", "trial")
    history = tracker.store.call(lambda client: client.get_metric_history(run.info.run_id, "eval/bad"))
    assert [point.value for point in history if point.step != 8] == [sys.float_info.max, -sys.float_info.max]
    assert [math.isnan(point.value) for point in history] == [False, True, False]
    end(folder)
    tracker.sync(folder)
    found = tracker.finished(folder.key)
    assert found is not None
    assert found.by_seed[1]["eval/bad"] == -math.inf


def test_a_failure_has_its_cause_and_traceback(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path, n_samples=42)
    report(folder, 4)
    end(folder, "ValueError: no", "Traceback (most recent call last): here")
    tracker = opened(uri, "failed")
    tracker.sync(folder)
    (run,) = runs_of(tracker, "failed", "trial")
    assert run.info.status == "FAILED"
    assert run.data.tags["pcl.cause"] == "ValueError: no"
    assert "objective" not in run.data.metrics
    assert "Traceback (most recent call last): here" in artifact(tracker, run, "failure.txt", tmp_path)
    assert tracker.finished(folder.key) is None


def test_a_trial_that_failed_before_it_reported_goes_on_in_its_run(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    end(folder, "worker killed")
    tracker = opened(uri, "reopened")
    tracker.sync(folder)
    (before,) = runs_of(tracker, "reopened", "trial")
    folder.reopen()
    tracker.sync(folder)
    (run,) = runs_of(tracker, "reopened", "trial")
    assert run.info.run_id == before.info.run_id
    assert run.info.status == "RUNNING"
    assert "pcl.cause" not in run.data.tags
    report(folder, 4)
    end(folder)
    tracker.sync(folder)
    (run,) = runs_of(tracker, "reopened", "trial")
    assert (run.info.status, steps_of(tracker, run)) == ("FINISHED", [4])


@pytest.mark.parametrize("is_new_driver", [False, True])
def test_a_trial_that_begins_anew_has_no_step_twice(uri: str, tmp_path: Path, is_new_driver: bool) -> None:
    study = f"anew {is_new_driver}"
    folder = make_trial(tmp_path, seeds=(1, 2))
    report(folder, 4, 8)
    end(folder, "worker killed")
    tracker = opened(uri, study)
    tracker.sync(folder)
    folder.reopen()
    time.sleep(0.002)
    report(folder, 4)
    if is_new_driver:
        tracker = opened(uri, study)
    tracker.sync(folder)
    report(folder, 8)
    end(folder)
    tracker.sync(folder)
    (run,) = runs_of(tracker, study, "trial")
    seeds = runs_of(tracker, study, "seed")
    assert [r.info.status for r in (run, *seeds)] == ["FINISHED"] * 3
    assert [steps_of(tracker, r) for r in (run, *seeds)] == [[4, 8]] * 3


def test_closing_marks_what_is_open_and_resuming_opens_it(uri: str, tmp_path: Path) -> None:
    done, stopped = make_trial(tmp_path, n_samples=5), make_trial(tmp_path, seeds=(1, 2), n_samples=6)
    for folder in (done, stopped):
        report(folder, 4)
        opened(uri, "closed").sync(folder)  # each by a driver that then dies
    end(done)
    tracker = opened(uri, "closed")
    tracker.sync(done)
    tracker.summarize({"best": 0.9})
    tracker.close_study(End.KILLED)
    (parent,) = runs_of(tracker, "closed", "study")
    assert (parent.info.status, parent.data.metrics["best"]) == ("KILLED", 0.9)
    statuses = {run.data.tags["pcl.trial"]: run.info.status for run in runs_of(tracker, "closed", "trial")}
    assert statuses == {done.key: "FINISHED", stopped.key: "KILLED"}
    assert [run.info.status for run in runs_of(tracker, "closed", "seed")] == ["KILLED"] * 2

    end(stopped)
    tracker = opened(uri, "closed")
    assert runs_of(tracker, "closed", "study")[0].info.status == "RUNNING"
    tracker.sync(stopped)
    tracker.close_study(End.FINISHED)
    ended = [run for kind in ("study", "trial", "seed") for run in runs_of(tracker, "closed", kind)]
    assert [run.info.status for run in ended] == ["FINISHED"] * 5


def test_runs_made_twice_are_reduced_to_the_first(uri: str, tmp_path: Path) -> None:
    """A server may have made a run and yet not answered in time."""
    folder = make_trial(tmp_path)
    report(folder, 4)
    tracker = opened(uri, "twice")
    tracker.sync(folder)
    (run,) = runs_of(tracker, "twice", "trial")
    tags = {key: run.data.tags[key] for key in ("pcl.study", "pcl.kind", "pcl.trial")}
    tracker.store.create(run.info.experiment_id, "double", tags)
    tracker.close_study(End.FINISHED)
    assert [r.info.run_id for r in runs_of(tracker, "twice", "trial")] == [run.info.run_id]


def test_a_crash_or_a_lost_answer_after_any_request_leaves_no_trace(uri: str, tmp_path: Path) -> None:
    """The k-th request is done but not answered; then the same driver, or a new one, tries again."""
    writing = ("create_run", "log_batch", "set_terminated", "log_text")
    n_requests = math.inf
    k = 0
    while k < n_requests:
        study, left = f"lost {k}", k
        folder = make_trial(tmp_path / study, seeds=(1, 2))

        def lossy(name: str, true: Any) -> Any:
            def call(*arguments: Any, **named: Any) -> Any:
                nonlocal left
                answer = true(*arguments, **named)
                left -= 1
                if left == -1:
                    raise ConnectionError(f"no answer to {name}")
                return answer

            return call

        tracker = opened(uri, study)
        with pytest.MonkeyPatch.context() as patch:
            client = tracker.store._open()
            for name in writing:
                patch.setattr(client, name, lossy(name, getattr(client, name)))
            try:
                report(folder, 4)
                tracker.sync(folder)
                report(folder, 8)
                end(folder)
                tracker.sync(folder)
                n_requests = k
            except StoreError:
                tracker = tracker if k % 2 else opened(uri, study)
        if not folder.result():
            report(folder, 8)
            end(folder)
        tracker.sync(folder)
        tracker.close_study(End.FINISHED)
        (run,), seeds = runs_of(tracker, study, "trial"), runs_of(tracker, study, "seed")
        assert [r.info.status for r in (run, *seeds)] == ["FINISHED"] * 3, k
        assert [steps_of(tracker, r) for r in (run, *seeds)] == [[4, 8]] * 3, k
        assert steps_of(tracker, run, "objective") == [8], k
        k += 1
    assert k > 12


def test_a_run_deleted_by_hand_is_made_again(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    report(folder, 4)
    tracker = opened(uri, "deleted")
    tracker.sync(folder)
    tracker.store.delete(tracker.run_id(folder))
    report(folder, 8)
    with pytest.raises(StoreError):
        tracker.sync(folder)
    tracker.sync(folder)
    (run,) = runs_of(tracker, "deleted", "trial")
    assert steps_of(tracker, run) == [4, 8]


def test_a_parameter_that_is_there_with_another_value_stays(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    tracker = opened(uri, "conflict")
    tags = {"pcl.study": "conflict", "pcl.kind": "trial", "pcl.trial": folder.key}
    tracker.store.create(tracker.store.experiment("pcl/toy_x"), "x", tags)
    (run,) = runs_of(tracker, "conflict", "trial")
    tracker.store.log(run.info.run_id, params={"loss.n_samples": "4.0"})
    tracker = opened(uri, "conflict")
    tracker.sync(folder)
    (run,) = runs_of(tracker, "conflict", "trial")
    assert (run.data.params["loss.n_samples"], run.data.params["seeds"]) == ("4.0", "1")


def test_a_report_is_one_request(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = opened(uri, "requests")
    calls: Counter[str] = Counter()
    client = tracker.store._open()
    for name in ("log_batch", "create_run", "set_terminated", "search_runs", "get_run", "log_metric", "log_param"):
        true = getattr(client, name)
        monkeypatch.setattr(
            client, name, lambda *a, true=true, name=name, **k: (calls.update([name]), true(*a, **k))[1]
        )
    folder = make_trial(tmp_path)
    for batch in (4, 8, 12):
        report(folder, batch)
        tracker.sync(folder)
    assert calls == {"create_run": 1, "log_batch": 3}
    end(folder)
    tracker.sync(folder)
    assert calls == {"create_run": 1, "log_batch": 4, "set_terminated": 1}
    tracker.sync(folder)
    assert calls.total() == 6
    calls.clear()
    folder = make_trial(tmp_path, seeds=(1, 2))
    report(folder, 4, 8, 12)
    end(folder)
    tracker.sync(folder)
    assert calls == {"create_run": 3, "log_batch": 3, "set_terminated": 3}


def test_more_than_a_request_takes(uri: str) -> None:
    tracker = opened(uri, "large")
    (run,) = runs_of(tracker, "large", "study")
    metrics = [("m", float(step), 1000 + step, step) for step in range(2345)]
    params = {f"p{i}": "x" * 7000 for i in range(250)}
    tracker.store.log(run.info.run_id, metrics, params, {f"t{i}": "y" for i in range(120)})
    (run,) = runs_of(tracker, "large", "study")
    assert sorted(steps_of(tracker, run, "m")) == list(range(2345))
    assert {len(value) for value in run.data.params.values()} == {6000}
    assert len(run.data.params) == 250
    assert sum(key.startswith("t") for key in run.data.tags) == 120


def test_finished_trials_are_found_across_studies(uri: str, tmp_path: Path) -> None:
    one, three = make_trial(tmp_path, n_samples=21), make_trial(tmp_path, (1, 2, 3), n_samples=22)
    tracker = opened(uri, "elder", StudyTags(**{**TAGS.__dict__, "space": "toy_elder"}))
    for folder in (one, three):
        report(folder, 4, 8)
        tracker.sync(folder)
        assert tracker.finished(folder.key) is None
        end(folder)
        tracker.sync(folder)
    younger = opened(uri, "younger")
    for folder in (one, three):
        found = younger.finished(folder.key)
        assert found is not None
        assert (found.study, found.run_id) == ("elder", tracker.run_id(folder))
        assert found.by_seed == folder.rows()[-1].by_seed
    assert younger.finished("0" * 20) is None


def test_artifacts_and_figures(uri: str, tmp_path: Path) -> None:
    folder = make_trial(tmp_path)
    tracker = opened(uri, "artifacts")
    tracker.sync(folder)
    recorder = Recorder(tracker)
    scatter([1.0, 20.0, 90.0, math.nan], [2.0, 15.0, 70.0, 1.0], "kappa", tmp_path / "kappa.png")
    (tmp_path / "best.yaml").write_text("a: 1\n")
    parent = runs_of(tracker, "artifacts", "study")[0]
    recorder.submit_artifact(parent.info.run_id, tmp_path / "best.yaml")
    recorder.submit_artifact(folder, tmp_path / "kappa.png", "figures")
    assert recorder.close(20) == []
    assert artifact(tracker, parent, "best.yaml", tmp_path / "..") == "a: 1\n"
    root = tracker.store.artifacts
    assert root is not None
    figure = root / tracker.run_id(folder) / "artifacts" / "figures" / "kappa.png"
    assert figure.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="As many true"):
        scatter([1.0], [1.0, 2.0], "x", tmp_path / "x.png")


def test_the_recorder_coalesces_retries_and_says_what_is_left(tmp_path: Path) -> None:
    class Flaky(Tracker):
        """Answers once it is allowed to."""

        def __init__(self) -> None:
            super().__init__(default_uri(tmp_path))
            self.calls: Counter[str] = Counter()
            self.may_answer = threading.Event()
            self.is_away = True

        def sync(self, folder: TrialFolder) -> None:
            self.may_answer.wait(10)
            self.calls.update([folder.key])
            if self.is_away:
                raise StoreError("away")

    tracker = Flaky()
    a, b = make_trial(tmp_path, n_samples=31), make_trial(tmp_path, n_samples=32)
    recorder = Recorder(tracker, first_pause_s=0.01, longest_pause_s=0.02)
    recorder.submit(a)
    for _ in range(5):
        recorder.submit(b)
    assert recorder.pending == 2
    tracker.may_answer.set()
    while not (tracker.calls[a.key] > 1 and tracker.calls[b.key] > 1):
        time.sleep(0.01)
    assert recorder.errors == {a.key: "away", b.key: "away"}
    tracker.is_away = False
    assert recorder.close(10) == []
    assert (recorder.pending, recorder.errors) == (0, {})

    tracker.is_away = True
    recorder = Recorder(tracker, first_pause_s=60)
    recorder.submit(a)
    start = time.perf_counter()
    assert recorder.close(0.3) == [a.key]
    assert time.perf_counter() - start < 2
    recorder.submit(b)  # too late, and no error


WRITER = """
import sys
from pathlib import Path
from tests.test_tracking import TAGS, end, make_trial, opened, report
uri, name, folder = sys.argv[1:]
tracker = opened(uri, name)
for i in range(6):
    trial = make_trial(Path(folder) / name, seeds=(1, 2), n_samples=4 + i)
    report(trial, 4)
    tracker.sync(trial)
    report(trial, 8)
    end(trial)
    tracker.sync(trial)
"""


def test_processes_make_and_write_one_database_at_the_same_time(tmp_path: Path) -> None:
    uri, names = default_uri(tmp_path / "runs"), ["a", "b"]
    root = Path(__file__).parent.parent
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, uri, name, str(tmp_path)], cwd=root, stderr=subprocess.PIPE, text=True
        )
        for name in names
    ]
    assert [writer.communicate(timeout=90)[1] for writer in writers] == [""] * 2  # MLflow's chatter is not shown either
    assert [writer.returncode for writer in writers] == [0] * 2
    tracker = Tracker(uri)
    for name in names:
        assert len(runs_of(tracker, name, "study")) == 1
        assert len(runs_of(tracker, name, "trial")) == 6
        runs = runs_of(tracker, name, "trial") + runs_of(tracker, name, "seed")
        assert len(runs) == 18
        assert all(run.info.status == "FINISHED" and steps_of(tracker, run) == [4, 8] for run in runs)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def server(folder: Path, port: int) -> Iterator[None]:
    """A slim MLflow server; killed with its worker at the end."""
    command = [
        sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1",
        "--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", f"{folder}/served",
    ]  # fmt: skip
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (folder / "server.log").open("a") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1).close()
                break
            except OSError:
                assert process.poll() is None, (folder / "server.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_a_server_that_dies_and_comes_back_has_everything(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    uri = f"http://me:secret@127.0.0.1:{port}"
    folders = [make_trial(tmp_path, seeds, n_samples=4) for seeds in ((1,), (1, 2), (3,))]
    with server(tmp_path, port):
        tracker = Tracker(uri)
        tracker.check()
        parent = tracker.open_study("served", TAGS)
        recorder = Recorder(tracker, first_pause_s=0.05, longest_pause_s=0.5)
        for folder in folders[:2]:
            report(folder, 4)
            recorder.submit(folder)
        while recorder.pending:
            time.sleep(0.02)
    for folder in folders:
        report(folder, 8, 12)
        start = time.perf_counter()
        recorder.submit(folder)
        assert time.perf_counter() - start < 1  # no request, which may take ten
    end(folders[0])
    recorder.submit(folders[0])
    while len(recorder.errors) < 3:
        time.sleep(0.02)
    assert recorder.pending == 3
    assert "secret" not in str(recorder.errors)
    with pytest.raises(ValueError, match=f"http://127.0.0.1:{port} cannot be reached"):
        Tracker(uri).check()
    with server(tmp_path, port):
        end(folders[1], "killed for memory")
        recorder.submit(folders[1])
        assert recorder.close(30) == []
        tracker.close_study(End.FINISHED)
        assert [run.info.run_id for run in runs_of(tracker, "served", "study")] == [parent]
        runs = {run.data.tags["pcl.trial"]: run for run in runs_of(tracker, "served", "trial")}
        assert len(runs_of(tracker, "served", "trial")) == 3
        assert [runs[folder.key].info.status for folder in folders] == ["FINISHED", "FAILED", "KILLED"]
        steps = [steps_of(tracker, runs[folder.key]) for folder in folders]
        assert steps == [[4, 8, 12], [4, 8, 12], [8, 12]]
        assert [steps_of(tracker, run) for run in runs_of(tracker, "served", "seed")] == [[4, 8, 12]] * 2
        assert "killed for memory" in artifact(tracker, runs[folders[1].key], "failure.txt", tmp_path)
    assert capfd.readouterr() == ("", "")  # MLflow prints addresses, with passwords, unless told not to


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    assert tracking_uri(None, Path("runs")) == f"sqlite:///{tmp_path}/runs/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://team")
    assert tracking_uri(None, Path("runs")) == "http://team"
    assert tracking_uri("http://other", Path("runs")) == "http://other"
    assert Store("sqlite:///x.db").uri == f"sqlite:///{tmp_path}/x.db"
    assert Store("sqlite:///x.db").artifacts == tmp_path / "artifacts"
    assert Tracker("https://me:secret@host:1/a").shown_uri == "https://host:1/a"
    assert shown_uri("me:secret@host") == "host"
    for wrong in ("file:///tmp/x", "runs", "ftp://me:secret@host", "", "sqlite://", "databricks"):
        with pytest.raises(ValueError, match="must be sqlite:///FILE or an http") as error:
            Tracker(wrong)
        assert "secret" not in str(error.value)


def test_check_says_in_a_sentence_what_is_wrong_and_makes_nothing(tmp_path: Path) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match="cannot be reached") as error:
        Tracker(f"http://me:secret@127.0.0.1:{free_port()}").check()
    assert time.perf_counter() - start < 5
    assert "secret" not in str(error.value)
    assert "\n" not in str(error.value)
    Tracker(default_uri(tmp_path / "new")).check()
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").write_text("no database")
    for wrong in (f"sqlite:///{tmp_path}/file", f"sqlite:///{tmp_path}/file/x.db", f"sqlite:///{tmp_path}"):
        with pytest.raises(ValueError, match="The tracking") as error:
            Tracker(wrong).check()
        assert "\n" not in str(error.value)


def test_a_deleted_experiment_is_named(uri: str) -> None:
    tags = StudyTags(**{**TAGS.__dict__, "space": "toy_deleted"})
    tracker = opened(uri, "x", tags)
    experiment = tracker.store.experiment("pcl/toy_deleted")
    tracker.store.call(lambda client: client.delete_experiment(experiment))
    with pytest.raises(StoreError, match="'pcl/toy_deleted' has been deleted"):
        opened(uri, "x", tags)
