"""Load test: many short trials on three nodes, and the cost of listing and reporting many records."""

import dataclasses
import os
import resource
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from launch.benchmarks.study import open_study, smallest_spec
from launch.shared.command import say
from launch.testbed.mlflow import count
from launch.testbed.nodes import Cluster, cluster
from pcl.studies.cluster.session import available_resources, ray_cluster
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.monitoring import Gauges
from pcl.studies.execution.progress import Progress
from pcl.studies.execution.ray_runner import RayRunner
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.runner import Assignment
from pcl.studies.ledger.folders import Result, Status, StudyFolder, TrialFolder, now_ms
from pcl.studies.ledger.folders import Row as Report
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.report.outputs import table, write_all
from pcl.studies.results.selection import Outcome, ranked, winner
from pcl.studies.search.stages import Finding
from pcl.studies.space.search_space import SearchSpace, load_space
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.tags import RunKind, Tag
from pcl.studies.tracking.tracker import Tracker, default_uri

Row = dict[str, Any]

_N_NODES = 3


def measure(*, trials: int, seconds: float, cpus: int, records: int) -> list[Row]:
    """Measure and print both tables row by row."""
    space = load_space("toy_mcinfonce")
    spec = smallest_spec(space, "smoke")
    with cluster(is_networked=False, n_cpus=cpus) as nodes:
        os.environ.update(nodes.environment)  # before Ray is imported: this process is the driver
        nodes.start()
        for index in range(1, _N_NODES):
            nodes.add_node(f"node{index}")
        study = nodes.folder / "runs" / "load"
        made = make_trials(space, spec, trials)
        row = _run(nodes, space, spec, study, made, seconds)
        nodes.end_all()
        return [row, *_many(space, spec, study, made, records)]


def make_trials(space: SearchSpace, spec: StudySpec, n_trials: int) -> list[Trial]:
    """Return trials that differ in a number that nobody uses."""
    cell = spec.trials(space, 0, {})[0]
    return [
        dataclasses.replace(cell, config={**cell.config, "training.lr": 1e-6 * (1 + i)}, varied={"training.lr": i})
        for i in range(n_trials)
    ]


def sleeping(seconds: float) -> Callable[[dict[str, Any]], None]:
    """A trainable that sleeps, publishes one report and ends; sent by value, for nodes do not have this module."""

    def trainable(config: dict[str, Any]) -> None:
        from ray import tune  # noqa: PLC0415  reads the environment that was set

        (job,) = config["jobs"]
        trial, folder = Trial.of(job["trial"]), TrialFolder(Path(job["folder"]))
        folder.begin(trial)
        token, began = folder.claim(), time.perf_counter()
        time.sleep(seconds)
        value = trial.config["training.lr"]
        metrics = {job["objective"]: float(value), "train/loss": 0.0}
        folder.publish(Report(1, 1, now_ms(), seconds, dict.fromkeys(trial.seeds, metrics), {}), token)
        tune.report({"folder": job["folder"], "batch": 1, "n_batches": 1, "objective": value})
        folder.end(Result(Status.FINISHED, wall_s=time.perf_counter() - began), token)

    return trainable


def _run(
    nodes: Cluster, space: SearchSpace, spec: StudySpec, path: Path, trials: list[Trial],
    seconds: float,
) -> Row:  # fmt: skip
    with (
        ray_cluster(nodes.address, storage=Storage(path.parent)),
        open_study(space, spec, path) as (folder, tracker, recorder),
    ):
        resources, interrupt = Resources(), Interrupt()
        slots = resources.slots(available_resources())
        before, began, began_ms = _peak_mib(), time.perf_counter(), now_ms()
        with (
            Gauges(study=folder.name, stage=trials[0].stage, metric=space.objective.metric) as gauges,
            Progress(
                trials, len(trials), [], space.objective, recorder, interrupt, False, lambda _: None, gauges
            ) as progress,
        ):
            assignment = Assignment(folder, space.objective.metric, progress, interrupt)
            RayRunner(resources, sleeping(seconds)).run_trials(trials, assignment)
        ran = time.perf_counter() - began
        results = [result for trial in trials if (result := folder.trial(trial.key).result())]
        first_s = min(result.time_ms / 1000 - result.wall_s for result in results) - began_ms / 1000
        left = recorder.close(timeout_s=60)
        recorded = time.perf_counter() - began
        peak = _peak_mib()
        duplicates, missing = count(tracker.store.uri, folder, [trial.key for trial in trials])
    ideal = len(trials) * seconds / slots
    row = {
        "what": "trials", "trials": len(trials), "slots": slots, "first_s": first_s, "run_s": ran,
        "recorded_s": recorded, "ideal_s": ideal,
        "overhead_s_a_trial": (recorded - ideal) / len(trials), "rss_before_mib": before, "rss_peak_mib": peak,
        "duplicates": duplicates, "missing": missing, "unrecorded": len(left),
    }  # fmt: skip
    say(
        f"{len(trials)} trials of {seconds:g} s on {_N_NODES} nodes, {slots} at once: {ran:.0f} s (ideal "
        f"{ideal:.0f} s), the first began after {first_s:.0f} s, all were recorded after {recorded:.0f} s: "
        f"{row['overhead_s_a_trial']:.3f} s a trial; driver at most {peak:.0f} MiB ({before:.0f} before); "
        f"{duplicates} doubled, {missing} missing in MLflow"
    )
    return row


def _peak_mib() -> float:
    """Return this process's peak memory."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _many(space: SearchSpace, spec: StudySpec, path: Path, trials: list[Trial], n_records: int) -> list[Row]:
    """Copy the study's records in MLflow as those of other studies, and as many trials into one study's folder."""
    n_copies = -(-n_records // len(trials)) - 1
    copy_runs(path / "mlflow.db", n_copies)
    tracker = Tracker(default_uri(path))
    rows = []

    def timed(what: str, work: Callable[[], int]) -> None:
        began = time.perf_counter()
        n_found = work()
        seconds = time.perf_counter() - began
        say(f"{what}: {n_found} in {seconds:.1f} s")
        rows.append({"what": what, "records": n_found, "seconds": seconds})

    def listed(**tags: str) -> int:
        store = tracker.store
        return len(store.find(store.experiments("pcl/"), {f"pcl.{name}": value for name, value in tags.items()}))

    folder = StudyFolder(path.parent / "many")
    many = make_trials(space, spec, n_records)
    _copy_folders(StudyFolder(path), folder, trials, many)
    timed("studies listed from MLflow", lambda: listed(kind="study"))
    timed("a study's trials listed from MLflow", lambda: listed(kind="trial", study=path.name))
    timed("all trials listed from MLflow", lambda: listed(kind="trial"))
    timed("one known trial looked up", lambda: int(tracker.finished(trials[-1].key) is not None))
    timed("a study's trials reported: table and files", lambda: report(space, spec, folder, many))
    return rows


def report(space: SearchSpace, spec: StudySpec, folder: StudyFolder, trials: list[Trial]) -> int:
    """Report as a study does when its trials have ended; return how many there are."""
    outcomes = ranked([Outcome.of(trial, folder.trial(trial.key)) for trial in trials], space.objective)
    lines = table(outcomes, space)
    write_all(folder, space, spec, Finding({"grid": outcomes}, winner(outcomes, space.objective)))
    return len(lines) - 1


def _copy_folders(source: StudyFolder, target: StudyFolder, trials: list[Trial], many: list[Trial]) -> None:
    for index, trial in enumerate(many):
        copied = source.trial(trials[index % len(trials)].key).path
        shutil.copytree(copied, target.trial(trial.key).path)


def copy_runs(database: Path, n_copies: int) -> None:
    """Row by row in the database, which takes seconds instead of half an hour; each copy is another study's."""
    trials = f"SELECT run_uuid FROM tags WHERE key = '{Tag.KIND}' AND value = '{RunKind.TRIAL}'"
    with closing(sqlite3.connect(database)) as connection, connection:
        runs = [row[0] for row in connection.execute(trials)]
        copies = [(f"copy{copy}-", run) for copy in range(n_copies) for run in runs]
        for name in ("runs", "params", "tags", "metrics", "latest_metrics"):
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            chosen = ", ".join("? || run_uuid" if column == "run_uuid" else column for column in columns)
            insert = f"INSERT INTO {name} ({', '.join(columns)}) SELECT {chosen} FROM {name} WHERE run_uuid = ?"
            connection.executemany(insert, copies)
        connection.execute(
            "UPDATE tags SET value = value || '-' || substr(run_uuid, 1, instr(run_uuid, '-') - 1) "
            f"WHERE key = '{Tag.STUDY}' AND run_uuid LIKE 'copy%'"
        )
