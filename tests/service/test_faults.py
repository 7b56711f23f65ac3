"""Faults of clusters and tracking servers, as `launch/bench.py faults` brings them about; here those that are quick."""

import math
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from launch.benchmarks.faults import Faults, is_harmed, write_space
from launch.testbed.checkpoints import Checkpoints, usual_and_longest
from launch.testbed.mlflow import count
from launch.testbed.processes import DEADLINE_S, descendants, free_port, processes_of, started, wait_for
from launch.testbed.proxy import proxy
from pcl.studies.ledger.folders import Result, Row, Status, StudyFolder
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.recorder import Recorder
from pcl.studies.tracking.store import Store, StoreError
from pcl.studies.tracking.tracker import StudyTags, Tracker
from tests.support.clusters import Cluster
from tests.support.services import alone, best_of, home

EXPECTED_SECONDS = 40
NAMESPACES = Path("/run/netns")


def test_the_trials_of_a_killed_node_go_on_elsewhere() -> None:
    """On nodes of this machine; those with networks of their own are the benchmark's, see below."""
    with home() as place:
        nodes = Cluster(place)
        try:
            nodes.start(n_cpus=0, has_dashboard=False, RAY_health_check_timeout_ms="3000")
            nodes.add_node("first")
            space = write_space(nodes.folder, n_reports=24, kappas=[10])
            expected = alone(space)
            faults = Faults(nodes, space, is_served=False)
            faults.expect(best_of(expected), expected)
            row = faults.happen("node killed")
        finally:
            nodes.end_all()
    assert (row["trials"], row["duplicates"], row["missing"]) == (4, 0, 0)
    assert row["same_winner"]
    assert row["same_reports"]
    assert not is_harmed(row)
    assert all(is_harmed({**row, **harm}) for harm in ({"duplicates": 1}, {"missing": 1}, {"same_reports": False}))
    assert row["moved"] >= 1
    # They are saved several times a second here, but how often depends on the machine; then their end is to be seen.
    assert 0 <= row["redone_s"] < row["longest_interval_s"] + 10
    assert row["interval_s"] <= row["longest_interval_s"] < row["wall_s"]
    assert row["nodes_used"] <= 2


@pytest.mark.slow
@pytest.mark.xdist_group("chaos")
def test_a_benchmark_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    folders = set(Path("/tmp").glob("pcl-*"))
    command = [sys.executable, "launch/bench.py", "faults", "--output", tmp_path / "faults.json"]
    bench = started(command, tmp_path / "out", os.environ)
    try:
        wait_for(lambda: "a head and two nodes" in bench.said or bench.process.poll() is not None, "its cluster")
        (folder,) = (path for path in set(Path("/tmp").glob("pcl-*")) - folders if is_of(path, bench.process.pid))
        networks = {
            name.partition("-")[0] for name in namespaces_of(descendants(bench.process.pid, processes_of(folder)))
        }
        assert len(networks) <= 1  # none where this machine does not allow it
    finally:
        bench.process.terminate()
    assert bench.process.wait(DEADLINE_S) == 130, bench.errors
    assert "stopped; its nodes, networks and files are gone" in bench.errors
    assert not processes_of(folder)
    assert not folder.exists()
    assert not [path for path in NAMESPACES.glob("*") if path.name.partition("-")[0] in networks]


def is_of(folder: Path, pid: int) -> bool:
    """Whether a process has started others that work in a folder; other tests have folders too."""
    return len(descendants(pid, processes_of(folder))) > 1


def namespaces_of(pids: Iterable[int]) -> set[str]:
    """Of the network, by name, in which processes are; others may have some beside them."""
    found = {Path(f"/proc/{pid}/ns/net").stat().st_ino for pid in pids if Path(f"/proc/{pid}/ns/net").exists()}
    return {path.name for path in NAMESPACES.glob("*") if path.exists() and path.stat().st_ino in found}


def test_checkpoints_are_seen(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    file = tmp_path / "trials" / "key" / "checkpoint.pt"
    file.parent.mkdir(parents=True)
    for saved in (100.0, 101.0, 101.0, 104.0):
        file.touch()
        os.utime(file, (saved, saved))
        checkpoints.look()
    assert checkpoints.intervals() == [1.0, 3.0]
    assert checkpoints.intervals(until=103.0) == [1.0]
    assert usual_and_longest([1.0, 3.0, 1.0]) == (1.0, 3.0)
    assert checkpoints.since_last("key", 103.5) == 2.5
    assert math.isnan(checkpoints.since_last("key", 99.0))


TAGS = StudyTags("space", "smoke", "reference", "eval/x", "toy", "", "", "")


def ended_trial(study: StudyFolder) -> Trial:
    trial = Trial({"a": 1}, (1,), "grid")
    folder = study.trial(trial.key)
    folder.begin(trial)
    token = folder.claim()
    folder.publish(Row(1, 1, 1000, 1.0, {1: {"eval/x": 0.5, "train/loss": 1.0}}, {}), token)
    folder.end(Result(Status.FINISHED), token)
    return trial


@pytest.fixture(scope="module")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Tracker:
    return Tracker(f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}")


def every_call(monkeypatch: pytest.MonkeyPatch, before: Callable[[], object]) -> None:
    """Do something before every request to MLflow."""
    call = Store.call

    def with_before(self: Store, request: Any) -> Any:
        before()
        return call(self, request)

    monkeypatch.setattr(Store, "call", with_before)


def test_a_slow_server_is_waited_for_while_it_answers(
    tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record takes several requests; however short the patience with a server that says nothing, one that answers
    once in that time is waited for."""
    study = StudyFolder(tmp_path / "slow")
    tracker.open_study("slow", TAGS)
    trial = ended_trial(study)
    turns = threading.Semaphore(0)
    every_call(monkeypatch, turns.acquire)
    recorder = Recorder(tracker)
    recorder.submit(study.trial(trial.key))
    (thread,) = recorder._threads
    n_waited = 0

    class OneAnswer(threading.Thread):
        """Stands for the recorder's: the patience with it ends when it has had one more answer."""

        def join(self, timeout: float | None = None) -> None:
            nonlocal n_waited
            n_waited += 1
            n_answers = tracker.store.n_answers
            turns.release()
            wait_for(lambda: tracker.store.n_answers > n_answers or not thread.is_alive(), "an answer")

    recorder._threads = [OneAnswer()]
    assert recorder.close(timeout_s=0.0) == []
    assert n_waited > 2
    monkeypatch.undo()
    assert count(tracker.store.uri, study, [trial.key]) == (0, 0)
    assert count(tracker.store.uri, study, [trial.key, "another"]) == (0, 1)
    assert count(tracker.store.uri, study, []) == (1, 0)
    left = {"pcl.study": "slow", "pcl.kind": "trial", "pcl.trial": trial.key}  # as by a driver that was killed
    tracker.store.create(tracker.store.experiments("pcl/")[0], "left", left)
    assert count(tracker.store.uri, study, [trial.key]) == (1, 0)


def test_a_server_that_answers_and_always_fails_is_given_up(
    tracker: Tracker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = StudyFolder(tmp_path / "full")
    tracker.open_study("full", TAGS)
    trial = ended_trial(study)

    def refuse(*_: object, **__: object) -> str:
        raise StoreError("the disk is full")

    monkeypatch.setattr(Store, "create", refuse)
    recorder = Recorder(tracker, first_pause_s=0.01, longest_pause_s=0.05)
    recorder.submit(study.trial(trial.key))
    assert recorder.close(timeout_s=0.5) == [trial.key]


@contextmanager
def serving(server: ThreadingHTTPServer) -> Iterator[str]:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class Echo(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.end_headers()
        self.wfile.write(self.path.encode() + body)

    def log_message(self, *_: object) -> None:
        pass


def test_the_proxy_passes_on_what_it_delays() -> None:
    target, closed = ThreadingHTTPServer(("127.0.0.1", 0), Echo), free_port()
    with serving(target), serving(proxy(0, target.server_port, 0.3)) as slow:
        began = time.monotonic()
        with urllib.request.urlopen(urllib.request.Request(f"{slow}/a?b=c", b"body"), timeout=DEADLINE_S) as answer:
            assert (answer.status, answer.read()) == (201, b"/a?b=cbody")
        assert time.monotonic() - began >= 0.3
    with serving(proxy(0, closed, 0.0)) as slow, pytest.raises(urllib.error.HTTPError, match="502"):
        urllib.request.urlopen(slow, timeout=DEADLINE_S)
