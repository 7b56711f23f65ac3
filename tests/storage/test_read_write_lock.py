"""The lock of those who record, and several who record at a time."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from launch.testbed.processes import DEADLINE_S, wait_for
from pcl.storage.read_write_lock import ReadWriteLock
from pcl.studies.ledger.folders import TrialFolder
from pcl.studies.tracking.recorder import Recorder


def test_some_are_together_and_one_is_alone() -> None:
    turns, inside, seen = ReadWriteLock(), [], []
    lock, are_in, may_leave = threading.Lock(), threading.Barrier(3), threading.Event()

    @contextmanager
    def noted(name: str) -> Iterator[None]:
        with lock:
            inside.append(name)
            seen.append(sorted(inside))
        yield
        with lock:
            inside.remove(name)

    def together() -> None:
        with turns.reading(), noted("together"):
            are_in.wait(DEADLINE_S)  # else both were not in at the same time
            assert may_leave.wait(DEADLINE_S)

    def alone() -> None:
        with turns.writing(), noted("alone"):
            time.sleep(0.05)

    def started(target: Callable[[], None]) -> list[threading.Thread]:
        threads = [threading.Thread(target=target) for _ in range(2)]
        for thread in threads:
            thread.start()
        return threads

    threads = started(together)
    are_in.wait(DEADLINE_S)
    threads += started(alone)  # only now: who comes after one that waits to be alone waits too
    wait_for(lambda: turns._n_waiting == 2, "both wait to be alone")
    may_leave.set()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert not inside
    assert [names for names in seen if "alone" in names] == [["alone"], ["alone"]]
    assert ["together", "together"] in seen


class Slow:
    """A tracker that notes who is recorded, and beside whom."""

    def __init__(self) -> None:
        self.store = SimpleNamespace(database=None, n_answers=0)
        self.current: list[str] = []
        self.seen: list[tuple[str, ...]] = []
        self.lock = threading.Lock()
        self.are_two = threading.Barrier(2)

    def sync(self, folder: TrialFolder) -> None:
        self._work(folder.key)

    def log_artifact(self, owner: TrialFolder | str, path: Path) -> None:
        self._work(path.name)

    def _work(self, name: str) -> None:
        with self.lock:
            self.current.append(name)
            self.seen.append(tuple(self.current))
            is_early = len(self.seen) <= 2
        if is_early:
            self.are_two.wait(DEADLINE_S)  # else one is done before another begins
        time.sleep(0.05)
        with self.lock:
            self.current.remove(name)
            self.store.n_answers += 1


def test_a_server_is_sent_several_trials_at_a_time_but_none_twice(tmp_path: Path) -> None:
    tracker = Slow()
    recorder = Recorder(tracker)  # type: ignore[arg-type]
    for _ in range(3):
        for key in "abcdef":
            recorder.submit(TrialFolder(tmp_path / key))
        time.sleep(0.02)
    recorder.submit_artifact(TrialFolder(tmp_path / "a"), tmp_path / "figure")
    assert recorder.close(DEADLINE_S) == []
    assert max(map(len, tracker.seen)) > 1
    assert all(len(set(names)) == len(names) for names in tracker.seen)
    assert set("abcdef") <= {name for names in tracker.seen for name in names}
    assert tracker.seen[-1] == ("figure",)  # after all that were submitted before it, and beside none
