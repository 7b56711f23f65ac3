"""What tracking asks of MLflow's store: few requests, from several processes, of a server that dies and comes back."""

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.testbed.forks import forked
from launch.testbed.processes import DEADLINE_S
from pcl.storage.credentials import shown_uri
from pcl.studies.ledger.folders import TrialFolder
from pcl.studies.report.figures import scatter
from pcl.studies.tracking.recorder import Recorder
from pcl.studies.tracking.store import Store, StoreError, default_uri, tracking_uri
from pcl.studies.tracking.tracker import End, StudyTags, Tracker
from tests.support.services import free_port, wait_for
from tests.support.trackers import TAGS, artifact, end, error, make_trial, opened, report, runs_of, steps_of
from tests.support.tracking_server import PreparedServer, prepared


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
    recorder.submit_artifact(folder, tmp_path / "kappa.png")
    assert recorder.close(DEADLINE_S) == []
    assert artifact(tracker, parent, "best.yaml", tmp_path / "..") == "a: 1\n"
    root = tracker.store.artifacts
    assert root is not None
    figure = root / tracker.run_id(folder) / "artifacts" / "kappa.png"
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
            assert self.may_answer.wait(DEADLINE_S)
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
    wait_for(lambda: tracker.calls[a.key] > 1 and tracker.calls[b.key] > 1, "both are tried again")
    assert recorder.errors == {a.key: "away", b.key: "away"}
    tracker.is_away = False
    assert recorder.close(DEADLINE_S) == []
    assert (recorder.pending, recorder.errors) == (0, {})

    tracker.is_away = True
    recorder = Recorder(tracker, first_pause_s=60)
    recorder.submit(a)
    start = time.perf_counter()
    assert recorder.close(0.3) == [a.key]
    assert time.perf_counter() - start < 30  # it does not sit the pause out
    recorder.submit(b)  # too late, and no error


WRITER = """
import sys
from pathlib import Path
from tests.support import made_once
from tests.support.trackers import end, make_trial, opened, report
made_once.undo()  # MLflow makes the database
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
    script = tmp_path / "writer.py"
    script.write_text(WRITER)
    words = [[script, uri, name, tmp_path] for name in names]
    writers = [forked(word, tmp_path / f"{word[2]}.out", os.environ) for word in words]
    for writer in writers:
        assert writer.ended().errors == ""  # MLflow's chatter is not shown either
    tracker = Tracker(uri)
    for name in names:
        assert len(runs_of(tracker, name, "study")) == 1
        assert len(runs_of(tracker, name, "trial")) == 6
        runs = runs_of(tracker, name, "trial") + runs_of(tracker, name, "seed")
        assert len(runs) == 18
        assert all(run.info.status == "FINISHED" and steps_of(tracker, run) == [4, 8] for run in runs)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[tuple[str, PreparedServer, PreparedServer]]:
    """The address, with a password, of two servers that run one after the other."""
    port = free_port()
    with prepared(tmp_path, port, 2) as (first, second):
        yield f"http://me:secret@127.0.0.1:{port}", first, second


def test_a_server_that_dies_and_comes_back_has_everything(
    tmp_path: Path, servers: tuple[str, PreparedServer, PreparedServer], capfd: pytest.CaptureFixture[str]
) -> None:
    uri, first, second = servers
    folders = [make_trial(tmp_path, seeds, n_samples=4) for seeds in ((1,), (1, 2), (3,))]
    with first.running():
        tracker = Tracker(uri)
        tracker.check()
        parent = tracker.open_study("served", TAGS)
        recorder = Recorder(tracker, first_pause_s=0.05, longest_pause_s=0.5)
        for folder in folders[:2]:
            report(folder, 4)
            recorder.submit(folder)
        wait_for(lambda: not recorder.pending, "all is recorded")
    for folder in folders:
        report(folder, 8, 12)
        start = time.perf_counter()
        recorder.submit(folder)
        assert time.perf_counter() - start < 8  # no request, which may take ten
    end(folders[0])
    recorder.submit(folders[0])
    wait_for(lambda: len(recorder.errors) == 3, "all have failed")
    assert recorder.pending == 3
    assert "secret" not in str(recorder.errors)
    with pytest.raises(ValueError, match=f"{shown_uri(uri)} cannot be reached"):
        Tracker(uri).check()
    with second.running():
        end(folders[1], error("killed for memory"))
        recorder.submit(folders[1])
        assert recorder.close(DEADLINE_S) == []
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
    for password in ("se@cret", "se/cret"):
        assert shown_uri(f"http://me:{password}@host:1/a") == "http://host:1/a"
    for harmless in ("http://host:5000/team@home", "http://host/team@home", "sqlite:////home/me@home/mlflow.db"):
        assert shown_uri(harmless) == harmless
    for wrong in ("file:///tmp/x", "runs", "ftp://me:secret@host", "", "sqlite://", "databricks"):
        with pytest.raises(ValueError, match="must be sqlite:///FILE or an http") as error:
            Tracker(wrong)
        assert "secret" not in str(error.value)


def test_check_says_in_a_sentence_what_is_wrong_and_makes_nothing(tmp_path: Path) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match="cannot be reached") as error:
        Tracker(f"http://me:secret@127.0.0.1:{free_port()}").check()
    assert time.perf_counter() - start < 60  # MLflow's own client tries for minutes
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
