"""How large studies may be: many short trials on three nodes, and what many records cost who lists and reports them."""

import argparse
import dataclasses
import os
import resource
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.benchmarks.study import open_study, smallest_spec
from launch.shared.command import say, whole_number
from launch.testbed.mlflow import count
from launch.testbed.nodes import Cluster, cluster
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.tracking.tags import RunKind, Tag

if TYPE_CHECKING:
    from pcl.studies.ledger.folders import StudyFolder
    from pcl.studies.ledger.study_spec import StudySpec
    from pcl.studies.space.search_space import SearchSpace
    from pcl.studies.space.trial import Trial

Row = dict[str, Any]

_N_NODES = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `bench.py load`."""
    parser.add_argument("--trials", type=whole_number, default=1000, help="default: 1000")
    parser.add_argument("--seconds", type=float, default=1.0, help="that each trial sleeps (default: 1)")
    parser.add_argument("--cpus", type=whole_number, default=4, help="of a node, by name only (default: 4)")
    parser.add_argument("--records", type=whole_number, default=10_000, help="runs that are listed (default: 10000)")


def measure(arguments: argparse.Namespace) -> list[Row]:
    """Both tables, printed row by row."""
    from pcl.studies.space.search_space import load_space  # noqa: PLC0415

    space = load_space("toy_mcinfonce")
    spec = smallest_spec(space, "smoke")
    with cluster(is_networked=False, n_cpus=arguments.cpus) as nodes:
        os.environ.update(nodes.environment)  # before Ray is imported: this process is the driver
        nodes.start()
        for index in range(1, _N_NODES):
            nodes.add_node(f"node{index}")
        study = nodes.folder / "runs" / "load"
        trials = make_trials(space, spec, arguments.trials)
        row = _run(nodes, space, spec, study, trials, arguments)
        nodes.end_all()
        return [row, *_many(space, spec, study, trials, arguments.records)]


def make_trials(space: "SearchSpace", spec: "StudySpec", n_trials: int) -> list["Trial"]:
    """Different ones, which differ in a number that nobody uses."""
    cell = spec.trials(space, 0, {})[0]
    return [
        dataclasses.replace(cell, config={**cell.config, "training.lr": 1e-6 * (1 + i)}, varied={"training.lr": i})
        for i in range(n_trials)
    ]


def sleeping(seconds: float) -> Callable[[dict[str, Any]], None]:
    """A trainable that sleeps, publishes one report and ends; sent by value, for nodes do not have this module."""

    def trainable(config: dict[str, Any]) -> None:
        import time  # noqa: PLC0415
        from pathlib import Path  # noqa: PLC0415

        from ray import tune  # noqa: PLC0415

        from pcl.studies.ledger.folders import Result, Row, Status, TrialFolder, now_ms  # noqa: PLC0415
        from pcl.studies.space.trial import Trial  # noqa: PLC0415

        (job,) = config["jobs"]
        trial, folder = Trial.of(job["trial"]), TrialFolder(Path(job["folder"]))
        folder.begin(trial)
        token, began = folder.claim(), time.perf_counter()
        time.sleep(seconds)
        value = trial.config["training.lr"]
        metrics = {job["objective"]: float(value), "train/loss": 0.0}
        folder.publish(Row(1, 1, now_ms(), seconds, dict.fromkeys(trial.seeds, metrics), {}), token)
        tune.report({"folder": job["folder"], "batch": 1, "n_batches": 1, "objective": value})
        folder.end(Result(Status.FINISHED, wall_s=time.perf_counter() - began), token)

    return trainable


def _run(
    nodes: Cluster, space: "SearchSpace", spec: "StudySpec", path: Path, trials: list["Trial"],
    arguments: argparse.Namespace,
) -> Row:  # fmt: skip
    from pcl.studies.cluster.session import available_resources, ray_cluster  # noqa: PLC0415
    from pcl.studies.execution.interrupt import Interrupt  # noqa: PLC0415
    from pcl.studies.execution.monitoring import Gauges  # noqa: PLC0415
    from pcl.studies.execution.progress import Progress  # noqa: PLC0415
    from pcl.studies.execution.resources import Resources  # noqa: PLC0415
    from pcl.studies.execution.runner import run_trials  # noqa: PLC0415
    from pcl.studies.ledger.folders import now_ms  # noqa: PLC0415

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
            run_trials(
                trials, folder, space.objective.metric, resources, progress, interrupt, path / "ray",
                sleeping(arguments.seconds),
            )  # fmt: skip
        ran = time.perf_counter() - began
        results = [result for trial in trials if (result := folder.trial(trial.key).result())]
        first_s = min(result.time_ms / 1000 - result.wall_s for result in results) - began_ms / 1000
        left = recorder.close(timeout_s=60)
        recorded = time.perf_counter() - began
        peak = _peak_mib()
        duplicates, missing = count(tracker.store.uri, folder, [trial.key for trial in trials])
    ideal = len(trials) * arguments.seconds / slots
    row = {
        "what": "trials", "trials": len(trials), "slots": slots, "first_s": first_s, "run_s": ran,
        "recorded_s": recorded, "ideal_s": ideal,
        "overhead_s_a_trial": (recorded - ideal) / len(trials), "rss_before_mib": before, "rss_peak_mib": peak,
        "duplicates": duplicates, "missing": missing, "unrecorded": len(left),
    }  # fmt: skip
    say(
        f"{len(trials)} trials of {arguments.seconds:g} s on {_N_NODES} nodes, {slots} at once: {ran:.0f} s (ideal "
        f"{ideal:.0f} s), the first began after {first_s:.0f} s, all were recorded after {recorded:.0f} s: "
        f"{row['overhead_s_a_trial']:.3f} s a trial; driver at most {peak:.0f} MiB ({before:.0f} before); "
        f"{duplicates} doubled, {missing} missing in MLflow"
    )
    return row


def _peak_mib() -> float:
    """The most memory that this process has had so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _many(space: "SearchSpace", spec: "StudySpec", path: Path, trials: list["Trial"], n_records: int) -> list[Row]:
    """Copies of the study's records, as of other studies, in MLflow; and as many trials in one study's folder."""
    from pcl.studies.ledger.folders import StudyFolder  # noqa: PLC0415
    from pcl.studies.tracking.tracker import Tracker, default_uri  # noqa: PLC0415

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


def report(space: "SearchSpace", spec: "StudySpec", folder: "StudyFolder", trials: list["Trial"]) -> int:
    """What a study does when its trials have ended; how many there are."""
    from pcl.studies.report.outputs import table, write_all  # noqa: PLC0415
    from pcl.studies.results.selection import Outcome, ranked, winner  # noqa: PLC0415
    from pcl.studies.search.stages import Finding  # noqa: PLC0415

    outcomes = ranked([Outcome.of(trial, folder.trial(trial.key)) for trial in trials], space.objective)
    lines = table(outcomes, space)
    write_all(folder, space, spec, Finding({"grid": outcomes}, winner(outcomes, space.objective)))
    return len(lines) - 1


def _copy_folders(source: "StudyFolder", target: "StudyFolder", trials: list["Trial"], many: list["Trial"]) -> None:
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
