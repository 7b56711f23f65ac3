"""Overhead of the service: trials that do nothing, and a real grid's time outside of its trials."""

import dataclasses
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from launch.benchmarks import Row
from launch.shared.command import say
from pcl.metrics.names import TRAIN_LOSS
from pcl.studies.cluster.session import available_resources, ray_cluster
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.progress import Progress
from pcl.studies.execution.ray_runner import RayRunner
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.runner import Assignment, TrialRunner
from pcl.studies.execution.trial_execution import Choices, Execution
from pcl.studies.ledger.folders import Result, Status, StudyFolder, TrialFolder, now_ms
from pcl.studies.ledger.folders import Row as Report
from pcl.studies.ledger.opened_study import opened
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.search.stages import Search
from pcl.studies.space.search_space import Objective, SearchSpace, load_space
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.recorder import Recorder
from pcl.studies.tracking.store import default_uri
from pcl.studies.tracking.tracker import StudyTags, Tracker

_WINDOW = 25  # trials; their minimum counts, as training, garbage and MLflow's requests come and go


def measure(*, trials: int, scale: str, space: str) -> list[Row]:
    """Measure and print both tables row by row."""
    searched = load_space(space)
    started = time.perf_counter()
    with ray_cluster(None), tempfile.TemporaryDirectory(prefix="pcl-bench-") as folder:
        set_up = time.perf_counter() - started
        say(f"Ray started in {set_up:.1f} s")
        rows = [_nothing(searched, Path(folder), trials), _grid(searched, Path(folder), scale)]
    return [{**row, "ray_start_s": set_up} for row in rows]


def make_trials(space: SearchSpace, spec: StudySpec, n_trials: int) -> list[Trial]:
    """Return trials that differ only in a number that is never used."""
    cell = spec.trials(space, 0, {})[0]
    return [
        dataclasses.replace(cell, config={**cell.config, "training.lr": 1e-6 * (1 + i)}, varied={"training.lr": i})
        for i in range(n_trials)
    ]


def _sleeping(seconds: float) -> Callable[[dict[str, Any]], None]:
    """Return a trainable that sleeps, publishes one report and ends; sent by value, as nodes lack this module."""

    def trainable(config: dict[str, Any]) -> None:
        from ray import tune  # noqa: PLC0415  reads the environment on import

        (job,) = config["jobs"]
        trial, folder = Trial.of(job["trial"]), TrialFolder(Path(job["folder"]))
        folder.begin(trial)
        token, began = folder.claim(), time.perf_counter()
        time.sleep(seconds)
        value = trial.config["training.lr"]
        metrics = {job["objective"]: float(value), TRAIN_LOSS: 0.0}
        folder.publish(Report(1, 1, now_ms(), seconds, dict.fromkeys(trial.seeds, metrics), {}), token)
        tune.report({"folder": job["folder"], "batch": 1, "n_batches": 1, "objective": value})
        folder.end(Result(Status.FINISHED, wall_s=time.perf_counter() - began), token)

    return trainable


@dataclasses.dataclass(frozen=True)
class Usage:
    """Resources that this process uses."""

    rss_mib: float  # resident memory
    n_files: int  # open file descriptors
    n_threads: int

    @classmethod
    def now(cls) -> "Usage":
        """Measure this process."""
        own = Path("/proc/self")
        pages = int((own / "statm").read_text().split()[1])
        rss_mib = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
        return cls(rss_mib, len(os.listdir(own / "fd")), len(os.listdir(own / "task")))


@dataclasses.dataclass
class Footprint:
    """Measurements of this process, one for every trial that has ended."""

    usages: list[Usage] = dataclasses.field(default_factory=list)

    def at(self, n_trials: int) -> Usage:
        """Return the minimum of each measure over the last trials, once `n_trials` have ended."""
        recent = self.usages[max(0, n_trials - _WINDOW) : n_trials]
        return Usage(
            min(usage.rss_mib for usage in recent), min(usage.n_files for usage in recent),
            min(usage.n_threads for usage in recent),
        )  # fmt: skip

    def rows(self, what: str, n_rows: int = 6) -> Iterator[Row]:
        """Yield rows of a table, equally spaced."""
        n_all = len(self.usages)
        for n_trials in [n_all * index // n_rows for index in range(1, n_rows + 1) if n_all >= n_rows]:
            yield {"what": what, "trials": n_trials, **vars(self.at(n_trials))}


class MeasuredProgress(Progress):
    """Progress that also measures this process."""

    def __enter__(self) -> Self:
        self.footprint = Footprint()
        return super().__enter__()

    def ended(self, folder: TrialFolder) -> None:
        super().ended(folder)
        self.footprint.usages.append(Usage.now())


def run_sleeping(
    trials: list[Trial], seconds: float, objective: Objective, folder: StudyFolder, recorder: Recorder
) -> Footprint:
    """Run trials that only sleep, on the cluster of this process."""
    return run_measured(RayRunner(Resources(), _sleeping(seconds)), trials, objective, folder, recorder)


def run_measured(
    runner: TrialRunner, trials: list[Trial], objective: Objective, folder: StudyFolder, recorder: Recorder
) -> Footprint:
    """Run trials; return this process's footprint meanwhile."""
    interrupt = Interrupt()
    with (
        runner.gauges(study=folder.name, stage=trials[0].stage, metric=objective.metric) as gauges,
        MeasuredProgress(
            trials, len(trials), [], objective, recorder, interrupt, False, lambda _: None, gauges
        ) as progress,
    ):  # fmt: skip
        runner.run_trials(trials, Assignment(folder, objective.metric, progress, interrupt))
    return progress.footprint


def _nothing(space: SearchSpace, storage: Path, n_trials: int) -> Row:
    """Measure the seconds per trial, with tracking, from the first submission until the last record is in MLflow."""
    spec = smallest_spec(space, "smoke")
    trials = make_trials(space, spec, n_trials)
    with open_study(space, spec, storage / "nothing") as (folder, tracker, recorder):
        started = time.perf_counter()
        run_sleeping(trials, 0.0, space.objective, folder, recorder)
        ran = time.perf_counter() - started
        missing = recorder.close(timeout_s=60)
        recorded = time.perf_counter() - started
        n_found = sum(tracker.finished(trial.key) is not None for trial in trials)
    if missing or n_found != n_trials:
        raise RuntimeError(f"{n_trials - n_found} of {n_trials} trials are not in MLflow.")
    each = recorded / n_trials
    say(f"{n_trials} trials that do nothing: {ran:.1f} s, recorded after {recorded:.1f} s: {each:.3f} s a trial")
    return {"what": "nothing", "trials": n_trials, "run_s": ran, "recorded_s": recorded, "s_a_trial": each}


def _grid(space: SearchSpace, storage: Path, scale: str) -> Row:
    """Measure the share of a real grid's time that its slots spend outside of trials."""
    spec = smallest_spec(space, scale)
    resources = Resources()
    with open_study(space, spec, storage / "grid") as (folder, tracker, recorder):
        started = time.perf_counter()
        choices = Choices(RayRunner(resources), is_finalized=False)
        interrupt = Interrupt()
        execution = Execution(space.objective, folder, tracker, recorder, choices, interrupt, say)
        finding = Search(space, spec, execution, recorder, interrupt).run()
        recorder.close(timeout_s=60)
        seconds = time.perf_counter() - started
    in_trials = sum(outcome.result.wall_s for outcome in finding.outcomes if outcome.result)
    slots = resources.slots(available_resources())
    outside = 1 - in_trials / (slots * seconds)
    say(f"{space.name} at {scale}: {seconds:.1f} s, {outside:.1%} of {slots} slots' time outside of trials")
    return {"what": space.name, "scale": scale, "run_s": seconds, "in_trials_s": in_trials, "outside": outside}


def smallest_spec(space: SearchSpace, scale: str, settings: Mapping[str, Any] | None = None) -> StudySpec:
    """Return a study's spec with one seed and these settings of all its trials."""
    return StudySpec(space.name, space.fingerprint(), "reference", scale, dict(settings or {}), space.tuning_seeds[:1])


@contextmanager
def open_study(space: SearchSpace, spec: StudySpec, path: Path) -> Iterator[tuple[StudyFolder, Tracker, Recorder]]:
    """Open a study on disk and in its own MLflow store."""
    folder = StudyFolder(path)
    with opened(folder, spec):
        tracker = Tracker(default_uri(path))
        tags = StudyTags(space.name, spec.scale, spec.profile, space.objective.metric, spec.data, "", "", "")
        tracker.open_study(folder.name, tags)
        yield folder, tracker, Recorder(tracker)
