"""Load test: many short trials on three nodes and in this process, and the cost of listing many records.

The driver's footprint is measured as its trials end: memory, open files and threads should not grow.
"""

import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path

from launch.benchmarks import Row
from launch.benchmarks.measurement import peak_mib
from launch.benchmarks.study import Footprint, make_trials, open_study, run_measured, run_sleeping, smallest_spec
from launch.shared.command import say
from launch.testbed.mlflow import count
from launch.testbed.nodes import Cluster, cluster
from launch.testbed.small_network import SMALL
from pcl.studies.cluster.session import available_resources, ray_cluster
from pcl.studies.execution.inline_runner import InlineRunner
from pcl.studies.execution.resources import Resources
from pcl.studies.ledger.folders import StudyFolder, now_ms
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.report.outputs import table, write_all
from pcl.studies.results.selection import Outcome, ranked, winner
from pcl.studies.search.stages import Finding
from pcl.studies.space.search_space import SearchSpace, load_space
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.store import default_uri
from pcl.studies.tracking.tags import RunKind, Tag
from pcl.studies.tracking.tracker import Tracker

_N_NODES = 3
CHEAPEST = {**SMALL, "training.n_batches": 2, "training.eval_every": 2}


def measure(*, trials: int, inline: int, seconds: float, cpus: int, records: int) -> list[Row]:
    """Measure and print all tables row by row."""
    on_nodes = _on_nodes(trials, seconds, cpus, records)  # first: peak memory is of the whole process
    with tempfile.TemporaryDirectory(prefix="pcl-bench-") as folder:
        in_process = list(told(run_inline(Path(folder) / "inline", inline).rows("driver, inline")))
    return [*on_nodes, *in_process]


def run_inline(path: Path, n_trials: int) -> Footprint:
    """Train minimal trials in this process, recorded in MLflow; return its footprint meanwhile."""
    space = load_space("toy_mcinfonce")
    spec = smallest_spec(space, "smoke", CHEAPEST)
    made = make_trials(space, spec, n_trials)
    with open_study(space, spec, path) as (folder, _, recorder):
        footprint = run_measured(InlineRunner(Resources()), made, space.objective, folder, recorder)
        if missing := recorder.close(timeout_s=60):
            raise RuntimeError(f"{len(missing)} of {n_trials} trials are not in MLflow.")
    return footprint


def told(rows: Iterable[Row]) -> Iterator[Row]:
    """Print rows of a driver's footprint."""
    for row in rows:
        say(
            f"{row['what']}, after {row['trials']} trials: {row['rss_mib']:.0f} MiB, {row['n_files']} open files, "
            f"{row['n_threads']} threads"
        )
        yield row


def _on_nodes(trials: int, seconds: float, cpus: int, records: int) -> list[Row]:
    space = load_space("toy_mcinfonce")
    spec = smallest_spec(space, "smoke")
    with cluster(is_networked=False, n_cpus=cpus) as nodes:
        os.environ.update(nodes.environment)  # before Ray is imported: this process is the driver
        nodes.start()
        for index in range(1, _N_NODES):
            nodes.add_node(f"node{index}")
        study = nodes.folder / "runs" / "load"
        made = make_trials(space, spec, trials)
        rows = _run(nodes, space, spec, study, made, seconds)
        nodes.end_all()
        return [*rows, *_many(space, spec, study, made, records)]


def _run(
    nodes: Cluster, space: SearchSpace, spec: StudySpec, path: Path, trials: list[Trial], seconds: float
) -> list[Row]:  # fmt: skip
    with (
        ray_cluster(nodes.address, storage=Storage(path.parent)),
        open_study(space, spec, path) as (folder, tracker, recorder),
    ):
        slots = Resources().slots(available_resources())
        before, began, began_ms = peak_mib("cpu"), time.perf_counter(), now_ms()
        footprint = run_sleeping(trials, seconds, space.objective, folder, recorder)
        ran = time.perf_counter() - began
        results = [result for trial in trials if (result := folder.trial(trial.key).result())]
        first_s = min(result.time_ms / 1000 - result.wall_s for result in results) - began_ms / 1000
        left = recorder.close(timeout_s=60)
        recorded = time.perf_counter() - began
        peak = peak_mib("cpu")
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
    return [row, *told(footprint.rows("driver, Ray"))]


def _many(space: SearchSpace, spec: StudySpec, path: Path, trials: list[Trial], n_records: int) -> list[Row]:
    """Time listing many records: copies of the study's, as other studies in MLflow and as trials of one folder."""
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
    for index, trial in enumerate(many):
        copied = StudyFolder(path).trial(trials[index % len(trials)].key).path
        shutil.copytree(copied, folder.trial(trial.key).path)
    timed("studies listed from MLflow", lambda: listed(kind="study"))
    timed("a study's trials listed from MLflow", lambda: listed(kind="trial", study=path.name))
    timed("all trials listed from MLflow", lambda: listed(kind="trial"))
    timed("one known trial looked up", lambda: int(tracker.finished(trials[-1].key) is not None))
    timed("a study's trials reported: table and files", lambda: report(space, spec, folder, many))
    return rows


def report(space: SearchSpace, spec: StudySpec, folder: StudyFolder, trials: list[Trial]) -> int:
    """Write a study's table and files as if its trials had just ended; return how many there are."""
    outcomes = ranked([Outcome.of(trial, folder.trial(trial.key)) for trial in trials], space.objective)
    lines = table(outcomes, space)
    write_all(folder, space, spec, Finding({"grid": outcomes}, winner(outcomes, space.objective)))
    return len(lines) - 1


def copy_runs(database: Path, n_copies: int) -> None:
    """Copy runs as those of other studies, directly in the database: seconds instead of half an hour."""
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
