"""Fault table: what a study loses when its cluster fails, and whether it still finds the same winner.

Every event happens to a study of its own, all on one cluster of several nodes on this machine. The disk stays shared
while a network is cut.
"""

import json
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from launch.benchmarks import Row
from launch.shared.command import say
from launch.testbed.checkpoints import Checkpoints, usual_and_longest
from launch.testbed.mlflow import count
from launch.testbed.nodes import Cluster, cluster
from launch.testbed.processes import Server, Started, signal_all, stop_when, wait_for
from launch.testbed.small_network import SMALL

if TYPE_CHECKING:
    from pcl.studies.ledger.folders import StudyFolder, TrialFolder

Reports = dict[str, list[dict[int, dict[str, float]]]]  # trial's key -> report -> seed -> metric

_AXES = {"loss.n_samples": [2, 4], "training.phases": ["mu kappa", "joint"]}
_KAPPAS = (10, 20)
_N_BEFORE = 8  # reports of a trial before something happens to it
_SLOW_S = 5.0  # a request
_AWAY_S = 15.0
_CALM = "undisturbed"


def measure(*, reports: int, events: Sequence[str]) -> list[Row]:
    """Measure and print the table row by row."""
    with cluster() as nodes:
        nodes.start(n_cpus=0)  # the driver's
        nodes.add_node("first")
        by = "network namespaces" if nodes.network else "loopback; a cut is a raylet that is stopped"
        say(f"a head and two nodes of one core each, by {by}")
        faults = Faults(nodes, write_space(nodes.folder, reports))
        rows = [faults.happen(_CALM), *(faults.happen(event) for event in events)]
    return [{**row, "nodes": by} for row in rows]


def write_space(folder: Path, n_reports: int, kappas: Sequence[int] = _KAPPAS) -> Path:
    """Write a space of trials that report every two batches: four trials per value of kappa_pos."""
    axes = {**_AXES, "loss.kappa_pos": list(kappas)}
    base = {**SMALL, "training.n_batches": 2 * n_reports, "training.eval_every": 2}
    file = folder / "faults.py"
    file.write_text(
        "from pcl.studies.space.search_space import SearchSpace, Stage\n"
        f"SPACE = SearchSpace('faults', 'mc_info_nce', (Stage('grid', {axes!r}),), {base!r})\n"
    )
    return file


@dataclass
class Study:
    """A running study, and what happens to it."""

    nodes: Cluster
    second: str  # the node that the event hits
    storage: Path  # folder of this study alone, so that it reuses no results of others
    server: Server  # of MLflow
    where: list[str]  # options of its command for storage, MLflow and cluster
    process: Started  # its driver
    checkpoints: Checkpoints
    event_s: float = float("inf")  # when its trials were disturbed, in seconds since 1970; infinite before
    until_s: float = 0.0  # when the event was over
    _owners: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> "StudyFolder":
        from pcl.studies.ledger.folders import StudyFolder  # noqa: PLC0415  bench.py -h, which has EVENTS, answers at once

        return StudyFolder(self.storage / "s")

    @contextmanager
    def held(self, n_trials: int = 1) -> Iterator[None]:
        """Stop workers once `n_trials` have reports, so that none ends first; remember which worker has which trial."""

        def running() -> list["TrialFolder"]:
            return [t for t in self.folder.trials() if not t.result() and len(t.rows()) >= _N_BEFORE]

        wait_for(running, "a trial is on its way")
        what = f"{n_trials} trials are on their way"
        workers = stop_when(self.nodes.workers, lambda: len(running()) >= n_trials, what)
        begun = [t for t in self.folder.trials() if not t.result() and t.checkpoint.exists()]
        self._owners = {trial.key: (trial.path / "owner").read_text() for trial in begun}
        self.happened()
        try:
            yield
        finally:
            signal_all(workers, signal.SIGCONT)

    def happened(self) -> None:
        """Note that the event happens now."""
        self.event_s = time.time()

    def moved(self) -> list[float]:
        """Return the seconds from the last checkpoint to the event, of every trial that another worker took over."""
        owners = {key: (self.folder.trial(key).path / "owner").read_text() for key in self._owners}
        changed = [key for key, owner in self._owners.items() if owners[key] != owner]
        return [self.checkpoints.since_last(key, self.event_s) for key in changed]

    def stalled_s(self) -> float:
        """Return the longest time between two reports of a trial that overlaps the event; 0 without one."""
        times = [[row.time_ms / 1000 for row in trial.rows()] for trial in self.folder.trials()]
        gaps = [(before, after) for each in times for before, after in pairwise(each)]
        within = [after - before for before, after in gaps if before <= self.until_s and after > self.event_s]
        return max(within, default=0.0)

    def recorded_s(self) -> float:
        """Return the seconds since the end of the last trial, for a driver that has just ended."""
        return time.time() - max(result.time_ms for t in self.folder.trials() if (result := t.result())) / 1000

    def reports(self) -> Reports:
        """Return all reports by trial, without metrics that depend on the clock."""
        return {
            trial.key: [
                {seed: {k: v for k, v in m.items() if not k.startswith("time/")} for seed, m in row.by_seed.items()}
                for row in trial.rows()
            ]
            for trial in self.folder.trials()
        }


def kill_node(study: Study) -> None:
    """Kill one of two nodes, with all its processes."""
    with study.held(2):
        study.nodes.kill_node(study.second)


def add_node(study: Study) -> None:
    """Add a third node, and hold the others until it has a trial."""
    with study.held():
        study.nodes.add_node("third")
        wait_for(lambda: study.nodes.workers("third"), "the node that was added has a trial")


def kill_driver(study: Study) -> None:
    """Kill the driver, and resume from another process."""
    with study.held(2):
        study.process.kill()
    wait_for(lambda: not study.nodes.workers(), "the workers follow their driver")
    study.happened()  # they trained until here
    study.process = study.nodes.begin("launch/grid.py", "--resume", "s", *study.where)


def cut(study: Study, seconds: float) -> None:
    """Cut a node from the head for a while."""
    with study.held(2):
        study.nodes.connect(study.second, is_joined=False)
    time.sleep(seconds)
    study.nodes.connect(study.second, is_joined=True)


def tracking_goes(study: Study) -> None:
    """Kill MLflow's server, and restart it some seconds later."""
    with study.held():
        study.server.kill()
    time.sleep(_AWAY_S)
    study.server.start()


EVENTS: dict[str, Callable[[Study], None]] = {
    "node killed": kill_node,
    "node added": add_node,
    "driver killed": kill_driver,
    "network cut 5 s": partial(cut, seconds=5.0),  # Ray tolerates it
    "network cut 60 s": partial(cut, seconds=60.0),  # Ray gives the node up
    "tracking slow": lambda _: None,  # nothing happens to the study itself
    "tracking away": tracking_goes,
}


class Faults:
    """Runner of the studies of one space, each with an event.

    The cluster has a head without cores and a node with one; every study adds a second node. Studies are recorded
    through a server or directly in a database.
    """

    def __init__(self, nodes: Cluster, space: Path, is_served: bool = True) -> None:
        self.nodes, self.space, self.is_served = nodes, space, is_served
        self._n_studies = 0
        self.expect("", {})

    def expect(self, best: str, reports: Reports) -> None:
        """Set the winner's key and all reports of an undisturbed study."""
        self._calm_best, self._calm_reports = best, reports

    def happen(self, event: str) -> Row:
        """Run the same study with an event; return a row of the table."""
        storage = self.nodes.folder / "runs" / event.replace(" ", "-")
        storage.mkdir(parents=True)
        second = f"second{self._n_studies}"  # a new one each time: the last may be damaged
        self._n_studies += 1
        self.nodes.add_node(second)
        server = Server(storage, prefix=self.nodes.prefix)
        tracking = server.running(_SLOW_S if event == "tracking slow" else 0.0)
        with (
            tracking if self.is_served else nullcontext(server.database) as uri,
            Checkpoints(storage / "s") as checkpoints,
        ):
            began = time.monotonic()
            where = ["--storage", str(storage), "--tracking-uri", uri, "--address", self.nodes.address]
            new = ["--space", str(self.space), "--scale", "smoke", "--name", "s"]
            driver = self.nodes.begin("launch/grid.py", *new, *where)
            study = Study(self.nodes, second, storage, server, where, driver, checkpoints)
            if event in EVENTS:
                EVENTS[event](study)
            study.until_s = time.time()
            study.process.ended(timeout_s=900)
            seconds, recorded_s = time.monotonic() - began, study.recorded_s()
        row = self._row(event, study, seconds, recorded_s)
        for name in set(self.nodes.nodes) - {"head", "first"}:
            self.nodes.end_node(name)
        return row

    def _row(self, event: str, study: Study, seconds: float, recorded_s: float) -> Row:
        best = json.loads((study.folder.path / "summary.json").read_text())["best"]["key"]
        reports = study.reports()
        if event == _CALM:
            self.expect(best, reports)
        duplicates, missing = count(study.server.database, study.folder, list(self._calm_reports))
        moved = study.moved()
        usual_s, longest_s = usual_and_longest(study.checkpoints.intervals(study.event_s))
        row = {
            "event": event, "trials": len(reports), "moved": len(moved), "redone_s": max(moved, default=0.0),
            "interval_s": usual_s, "longest_interval_s": longest_s, "stalled_s": study.stalled_s(),
            "recorded_s": recorded_s, "wall_s": seconds, "duplicates": duplicates, "missing": missing,
            "same_winner": best == self._calm_best, "same_reports": reports == self._calm_reports,
            "nodes_used": len({result.node for t in study.folder.trials() if (result := t.result())}),
        }  # fmt: skip
        say(
            f"{event:<18}{row['trials']} trials, {row['moved']} moved, {row['redone_s']:.2f} s redone "
            f"(saved every {usual_s:.2f} s, at most {longest_s:.2f}), {row['stalled_s']:.1f} s stalled, "
            f"{recorded_s:.0f} s after the last, {seconds:.0f} s in all, {duplicates} doubled, {missing} missing, "
            f"winner {'the same' if row['same_winner'] else 'ANOTHER'}, "
            f"reports {'the same' if row['same_reports'] else 'OTHERS'}, {row['nodes_used']} nodes used"
        )
        return row


def is_harmed(row: Row) -> bool:
    """Return whether a study lost or duplicated something, or differs from an undisturbed one."""
    return bool(row["duplicates"] or row["missing"]) or not (row["same_winner"] and row["same_reports"])
