"""A study on nodes that share nothing but a store: killed, and resumed from elsewhere."""

import os
import shlex
import shutil
from pathlib import Path

import pytest

from launch.grid import main
from launch.shared.job_package import parcel
from launch.testbed.processes import free_port
from pcl.storage.mirror import Mirrored
from pcl.studies.ledger.folders import Status, StudyFolder
from pcl.studies.ledger.study_storage import Storage
from tests.support.buckets import CREDENTIALS, S3, s3
from tests.support.clusters import Cluster
from tests.support.services import (
    BASE,
    GRID,
    ONE_WORKER,
    alone,
    assert_refused,
    best_of,
    check_records,
    go_on,
    home,
    on_disk,
    summary_of,
)

__all__ = ["s3"]
EXPECTED_SECONDS = 200


@pytest.mark.slow
def test_a_study_in_a_store_outlives_its_driver(s3: S3) -> None:
    """Resumed as a job, it has the results of trials trained alone, to the bit, and every trial once in MLflow."""
    uri = s3.bucket()
    with home() as place:
        ray = Cluster(place)
        caches = {name: place.path / name for name in ("head", "apart", "one", "two")}
        for path in caches.values():
            path.mkdir()
        # Drivers run on the head and trials on the other node. Where that is allowed, it sees empty folders of its own
        # wherever drivers have their copies.
        can_hide = os.geteuid() == 0 and shutil.which("unshare") is not None
        hidden = " && ".join(f"mount -t tmpfs tmpfs {path}" for name, path in caches.items() if name != "apart")
        try:
            head = {**CREDENTIALS, "PCL_CACHE": str(caches["head"])}
            ray.start(n_cpus=0, has_dashboard=True, **head)
            own = {**CREDENTIALS, "PCL_CACHE": str(caches["apart"])}
            ray.add_node("apart", hidden if can_hide else "", n_cpus=2, **own)
            space = place.space("longer", GRID, {**BASE, "training.n_batches": 12, "training.eval_every": 2})
            where = ["--storage", uri, "--tracking-uri", f"sqlite:///{place.path}/mlflow.db"]
            first = ray.begin(
                "launch/grid.py", "--space", space, "--scale", "smoke", "--name", "s", *where, "--address", ray.address,
                **CREDENTIALS, PCL_CACHE=str(caches["one"]),
            )  # fmt: skip
            workers = place.hold_when(lambda: list(caches["one"].rglob("reports.json")), "the driver knows of a report")
            first.kill()
            assert len(list(caches["one"].rglob("result.json"))) < 4
            go_on(workers)
            going_on = ["launch/grid.py", "--resume", *where, *ONE_WORKER]
            # A job has the head's environment and its copies.
            second = ray.begin("launch/submit.py", "--address", ray.url, "--", *going_on)
            expected = alone(space)
            second.ended()
            check(uri, caches["two"], expected, place.path)
        finally:
            ray.end_all()


def check(uri: str, copy: Path, expected: dict[str, list[dict[int, dict[str, float]]]], records: Path) -> None:
    storage = Storage(copy, Mirrored(copy, uri))
    found = storage.study("s")
    found.pull()
    assert on_disk(found) == expected
    assert summary_of(found)["best"]["key"] == best_of(expected)
    results = [trial.result() for trial in found.trials()]
    assert all(result is not None and result.status is Status.FINISHED for result in results)
    left = {"best.yaml", "trials.csv", "summary.json", "kappa.png", "space.py"}
    assert left <= {path.name for path in found.path.iterdir()}
    assert not (found.path / "ray").exists()
    check_records(StudyFolder(found.path), f"sqlite:///{records}/mlflow.db")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--storage", "{away}", "--tracking-uri", "sqlite:///{folder}/x.db"], "NETWORK_CONNECTION"),
        (["--storage", "{missing}", "--tracking-uri", "sqlite:///{folder}/x.db"], "NO_SUCH_BUCKET"),
        (["--storage", "{there}"], "An MLflow server must be named for studies in s3://"),
        (["--storage", "{there}", "--resume"], "There is no study in s3://"),
        (["--storage", "{there}", "--resume", "s"], "There is no study 's' in s3://"),
    ],
)
def test_stores_that_cannot_be_used_are_refused(
    words: list[str], message: str, s3: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("PCL_CACHE", str(tmp_path))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    known = {"there": s3.bucket(), "missing": s3.address("missing"), "away": S3(free_port()).address("bucket")}
    given = [word.format(folder=tmp_path, **known) for word in words]
    given += ["--space", "toy_elk", "--scale", "smoke"] if "--resume" not in given else []
    assert_refused("launch/grid.py", main, given, message, monkeypatch, capsys)
    assert not list(tmp_path.rglob("*.json"))


def test_a_job_with_a_store_needs_no_folder(s3: S3) -> None:
    sent = parcel(["launch/grid.py", "--space", "toy_elk", "--storage", s3.address("bucket")], None, "")
    assert sent.folder == ""
    assert shlex.quote(s3.address("bucket")) in sent.command("python")
