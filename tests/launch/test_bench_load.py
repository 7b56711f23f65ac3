"""The parts of `launch/bench.py load` that need no cluster, on a few records."""

from pathlib import Path

import pytest

from launch.benchmarks.load import copy_runs, report, run_inline
from launch.benchmarks.study import make_trials, open_study, smallest_spec
from launch.testbed.mlflow import count
from pcl.studies.ledger.folders import Result, Row, Status, StudyFolder
from pcl.studies.space.search_space import load_space

EXPECTED_SECONDS = 160


def test_records_are_copied_listed_and_reported(tmp_path: Path) -> None:
    space = load_space("toy_elk")
    spec = smallest_spec(space, "smoke")
    trials = make_trials(space, spec, 3)
    assert len({trial.key for trial in trials}) == 3
    with open_study(space, spec, tmp_path / "load") as (folder, tracker, recorder):
        for index, trial in enumerate(trials):
            begun = folder.trial(trial.key)
            begun.begin(trial)
            token = begun.claim()
            metrics = {space.objective.metric: float(index), "train/loss": 0.0}
            begun.publish(Row(1, 1, 1000, 0.0, {1: metrics}, {}), token)
            begun.end(Result(Status.FINISHED), token)
            recorder.submit(begun)
        assert recorder.close(60) == []
        keys = [trial.key for trial in trials]
        copy_runs(tmp_path / "load" / "mlflow.db", 1)
        assert count(tracker.store.uri, folder, keys) == (0, 0)  # copies are of another study
        copied = tracker.store.find(tracker.store.experiments("pcl/"), {"pcl.study": "load-copy0"}, "FINISHED")
        assert sorted(run.data.tags["pcl.trial"] for run in copied) == sorted(keys)
        assert {run.data.metrics["train/loss"] for run in copied} == {0.0}
    assert report(space, spec, StudyFolder(tmp_path / "load"), trials) == 3
    assert (tmp_path / "load" / "best.yaml").exists()


@pytest.mark.slow
def test_a_driver_takes_no_more_with_every_trial(tmp_path: Path) -> None:
    """The last 200 of 300 trials in this process leave neither memory nor files nor threads behind."""
    found = run_inline(tmp_path / "inline", 300)
    for row in found.rows("inline"):
        print(row)
    early, late = found.at(100), found.at(300)
    assert late.rss_mib - early.rss_mib < 20  # measured: 4, for what a driver knows of each trial and its run
    assert late.n_files - early.n_files < 20
    assert late.n_threads - early.n_threads < 5
