"""Studies as users run them: processes of launch/grid.py that tests start, disturb, and count the traces of."""

import contextlib
import json
import math
import os
import shutil
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from launch.shared.command import run as run_command
from launch.testbed.nodes import Cluster as Nodes
from launch.testbed.processes import (
    ROOT,
    Server,
    free_port,
    processes_of,
    signal_all,
    stop_when,
    wait_for,
    workers_among,
)
from launch.testbed.processes import Started as Grid
from launch.testbed.small_network import SMALL
from pcl.studies.ledger.folders import Status, StudyFolder
from pcl.studies.space.search_space import load_space
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.run_content import params_of
from pcl.studies.tracking.store import Store, default_uri
from pcl.training.run import Run
from tests.support.fork_server import forked

Reports = dict[str, list[dict[int, dict[str, float]]]]  # trial's key -> report -> seed -> metric

__all__ = ["ROOT", "Grid", "Server", "free_port", "wait_for"]

BASE = SMALL

SHORT = {**BASE, "training.n_batches": 4, "training.eval_every": 2}
# A second a trial, with twelve reports: time to disturb it.
LONG = {**BASE, "training.n_batches": 24, "training.eval_every": 2}
# One worker after the other, where it matters only that they are: what takes time is to start them.
ONE_WORKER = ("--max-concurrent", "1")
INLINE = ("--runner", "inline")
GRID = {"grid": {"loss.n_samples": [2, 4], "training.phases": ["mu kappa", "joint"]}}


@dataclass
class Home:
    """A folder of studies. Paths are short: those of Ray's sockets have at most 107 bytes.

    Attributes:
        path: The folder.
        cluster: The Ray that drivers join; None where each starts its own, with its files in the folder.
        drivers: All that were started.
    """

    path: Path
    cluster: Nodes | None = None
    drivers: list[Grid] = field(default_factory=list)

    @property
    def storage(self) -> Path:
        return self.path / "runs"

    def space(self, name: str, stages: dict[str, Any], base: dict[str, Any] = BASE, **more: Any) -> Path:
        """Write a user's own search space of MCInfoNCE."""
        lines = [f"Stage({stage!r}, {axes!r})," for stage, axes in stages.items()]
        options = "".join(f", {key}={value!r}" for key, value in more.items())
        file = self.path / f"{name}.py"
        file.write_text(
            "from pcl.studies.space import SearchSpace, Stage, Variants\n"
            f"SPACE = SearchSpace({name!r}, 'mc_info_nce', ({''.join(lines)}), {base!r}{options})\n"
        )
        return file

    def variants(self, name: str, axis: str, settings: dict[str, dict[str, Any]], base: dict[str, Any] = BASE) -> Path:
        """Write a space of one axis, whose values are named settings."""
        file = self.space(name, {"grid": {axis: "VARIANTS"}}, base)
        file.write_text(file.read_text().replace("'VARIANTS'", f"Variants({settings!r})"))
        return file

    def start(self, *arguments: str | Path, script: str = "launch/grid.py") -> Grid:
        words, environment = [script, *arguments], {**os.environ, "RAY_TMPDIR": str(self.path)}
        if "--storage" not in arguments:
            words += ["--storage", self.storage]
        if self.cluster and "inline" not in arguments and "--address" not in arguments:
            words += ["--address", self.cluster.address]
            environment = self.cluster.environment
        self.drivers.append(forked(words, self.path / f"{len(self.drivers) + 1}.out", environment))
        return self.drivers[-1]

    def run(self, *arguments: str | Path, code: int = 0, script: str = "launch/grid.py") -> Grid:
        return self.start(*arguments, script=script).ended(code)

    def study(self, name: str) -> StudyFolder:
        return StudyFolder(self.storage / name)

    def n_reports(self, name: str) -> int:
        return sum(len(folder.rows()) for folder in self.study(name).trials())

    def processes(self) -> list[int]:
        """Those of its Ray, and drivers, whose environment the kernel does not tell."""
        return processes_of(self.path) + [grid.process.pid for grid in self.drivers if grid.process.poll() is None]

    def workers(self) -> list[int]:
        return workers_among(processes_of(self.cluster.folder if self.cluster else self.path))

    def hold_at(self, name: str, n_reports: int) -> list[int]:
        """Stop a study's workers once it has so many reports: however fast they are, it has hardly more."""
        wait_for(lambda: self.n_reports(name) or self.drivers[-1].process.poll() is not None, "a trial has reports")
        return self.hold_when(lambda: self.n_reports(name) >= n_reports, f"{name} has {n_reports} reports")

    def hold_when(self, is_so: Callable[[], Any], what: str) -> list[int]:
        """Stop the workers as soon as something is so, before it can be otherwise; returns them."""

        def is_so_before_the_end() -> bool:
            driver = self.drivers[-1]
            code = driver.process.poll()
            assert code is None, f"ended with {code} before {what}: {driver.said}\n{driver.errors}"
            return bool(is_so())

        return stop_when(self.workers, is_so_before_the_end, what)

    def wait_until_empty(self) -> None:
        """See that no process is left: those that Ray's raylet has started end soon after it, not with it."""
        wait_for(lambda: not self.processes() and not self.workers(), "no process left")

    def end_all(self) -> None:
        signal_all(self.processes() + self.workers(), signal.SIGKILL)


@contextlib.contextmanager
def home(cluster: Nodes | None = None) -> Iterator[Home]:
    """A new one; nothing of it is left."""
    path = Path(tempfile.mkdtemp(prefix="pcl-", dir="/tmp"))
    found = Home(path, cluster)
    try:
        yield found
    finally:
        found.end_all()
        found.wait_until_empty()
        shutil.rmtree(path, ignore_errors=True)


def go_on(workers: list[int]) -> None:
    """End a hold."""
    signal_all(workers, signal.SIGCONT)


class Records:
    """What MLflow has of a study."""

    def __init__(self, uri: str | Path, study: str) -> None:
        self.store = Store(default_uri(uri) if isinstance(uri, Path) else uri)
        self.study = study

    def runs(self, kind: str) -> list[Any]:
        return self.store.find(self.store.experiments("pcl/"), {"pcl.study": self.study, "pcl.kind": kind})

    def parent(self) -> Any:
        (run,) = self.runs("study")
        return run

    def steps(self, run: Any, metric: str = "train/loss") -> list[int]:
        history = self.store.call(lambda client: client.get_metric_history(run.info.run_id, metric))
        return [point.step for point in history]

    def artifacts(self, run: Any) -> set[str]:
        return {file.path for file in self.store.call(lambda client: client.list_artifacts(run.info.run_id))}

    def artifact(self, run: Any, name: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            found = self.store.call(lambda client: client.download_artifacts(run.info.run_id, name, folder))
            return Path(found).read_text()

    def statuses(self) -> Counter[str]:
        return Counter(run.info.status for run in self.runs("trial"))


def check_records(folder: StudyFolder, uri: str | Path, status: str = "FINISHED") -> Records:
    """Disk and MLflow tell the same: one run for each trial, every report in it once."""
    records = Records(uri, folder.name)
    trials = {trial.key: trial for trial in folder.trials()}
    runs = records.runs("trial")
    assert sorted(run.data.tags["pcl.trial"] for run in runs) == sorted(trials)
    found = records.parent().info.status
    assert found == status, f"the study's run is {found}"
    for run in runs:
        trial, result = trials[run.data.tags["pcl.trial"]], trials[run.data.tags["pcl.trial"]].result()
        assert result is not None
        assert run.info.status == result.status.name
        assert run.data.tags["mlflow.parentRunId"] == records.parent().info.run_id
        expected = [row.batch for row in trial.rows()]
        assert expected == sorted(set(expected))
        for metric in ("train/loss", "eval/kappa_rank_corr") if expected else ():
            assert records.steps(run, metric) == expected, metric
        assert run.data.params == params_of(trial.trial(), trial.trial().seeds)
        if result.status is Status.FINISHED:
            assert run.data.metrics["objective"] == trial.rows()[-1].metrics[run.data.tags["pcl.objective"]]
            assert "pcl.cause" not in run.data.tags
        else:
            assert run.data.tags["pcl.cause"] == result.cause
            assert records.artifact(run, "failure.txt").startswith(result.cause)
        assert "config.yaml" in records.artifacts(run)
    of_seeds = Counter(run.data.tags["pcl.trial"] for run in records.runs("seed"))
    assert of_seeds == {key: len(f.trial().seeds) for key, f in trials.items() if len(f.trial().seeds) > 1}
    return records


def alone(space: Path, seeds: tuple[int, ...] = (1,)) -> Reports:
    """Every report of every trial of a space's first stage, each trained by itself in this process; by key."""
    found = {}
    for cell in load_space(str(space)).cells(0, profile="reference", scale="smoke"):
        reports = [without_times(report.by_seed) for report in Run(cell.config, seeds)]
        found[Trial(cell.config.flat(), seeds, "grid").key] = reports
    return found


@cache
def long_alone() -> Reports:
    """The reports of `LONG` when every trial of `GRID` is trained alone."""
    with home() as place:
        return alone(place.space("long", GRID, LONG))


def check_undisturbed(folder: StudyFolder, expected: Reports, uri: str | Path) -> Records:
    """The study has what it would have, had nothing happened to it."""
    assert on_disk(folder) == expected
    assert all(trial.result().status is Status.FINISHED for trial in folder.trials())  # type: ignore[union-attr]
    assert summary_of(folder)["best"]["key"] == best_of(expected)
    assert not list(folder.path.rglob("*.tmp"))
    return check_records(folder, uri)


def without_times(by_seed: dict[int, dict[str, float]]) -> dict[int, dict[str, float]]:
    """Metrics that do not depend on the clock."""
    return {
        seed: {key: value for key, value in metrics.items() if not key.startswith("time/")}
        for seed, metrics in by_seed.items()
    }


def on_disk(folder: StudyFolder) -> Reports:
    """The same from a study's folder."""
    return {trial.key: [without_times(row.by_seed) for row in trial.rows()] for trial in folder.trials()}


def best_of(reports: Reports, metric: str = "eval/kappa_rank_corr") -> str:
    """Key of the trial whose last report has the largest mean."""
    return max(reports, key=lambda key: math.fsum(m[metric] for m in reports[key][-1].values()))


def summary_of(folder: StudyFolder) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder.path / "summary.json").read_text())
    return content


def assert_refused(
    program: str, main: Callable[[], None], words: list[str], message: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> str:  # fmt: skip
    """A launch command ends with one sentence on stderr and exit code 2; returns the sentence."""
    monkeypatch.setattr(sys, "argv", [program, *words])
    with pytest.raises(SystemExit) as ended:
        run_command(main)
    told = capsys.readouterr()
    assert ended.value.code == 2
    assert message in told.err
    assert len(told.err.splitlines()) == 1
    assert not told.out
    return told.err
