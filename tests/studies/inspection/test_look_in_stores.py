"""Commands on studies in a store: `look.py` and `apply.py` fetch a winner from it, `board.py` reads MLflow alone."""

import json
from pathlib import Path

import pytest

from launch.apply import main as apply
from launch.board import main as board
from launch.look import main as look
from pcl.config.run_config import RunConfig
from pcl.data.sources import data_folder, resolve
from pcl.storage.mirror import Mirrored
from pcl.storage.object_stores import joined
from pcl.studies.inspection.images import source_of
from pcl.studies.ledger.folders import Result, Status
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.space.trial import Trial
from pcl.training.run import Run
from tests.launch.test_look_command import FILES, SMALL, looked
from tests.studies.inspection.test_application import write_images
from tests.support.buckets import S3, s3
from tests.support.commands import called
from tests.support.services import assert_refused

__all__ = ["s3"]


@pytest.fixture(scope="module")
def uri(s3: S3, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the study "s", of one trial, as a driver elsewhere leaves it, and "begun", without a winner."""
    there, place = s3.bucket(), tmp_path_factory.mktemp("elsewhere")
    folder = Storage(place, Mirrored(place, there)).study("s")
    config = RunConfig.of({"task.data": "embedded", **SMALL}, task="images", scale="smoke")
    trial = Trial(
        config.flat(), (4,), "grid", {"encoder.dim": 8}, f"embedded-{resolve('embedded', data_folder()).fingerprint}"
    )
    of_trial = folder.trial(trial.key)
    of_trial.begin(trial)
    of_trial.close(Result(Status.FINISHED))
    training = Run(config, seeds=(4,))
    for _ in training:
        pass
    training.save(of_trial.checkpoint)
    spec = json.dumps(StudySpec("x", "x", "paper", "smoke").as_json())
    (folder.path / "study.json").write_text(spec)
    (folder.path / "summary.json").write_text(json.dumps({"best": {"key": trial.key}}))
    folder.mirror.push_all()
    begun = folder.beside("begun")
    begun.path.mkdir()
    (begun.path / "study.json").write_text(spec)
    begun.mirror.push_all()
    return there


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that has seen nothing of the store yet."""
    monkeypatch.setenv("PCL_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def test_a_winner_is_fetched_and_the_page_is_kept_in_the_store(uri: str, tmp_path: Path) -> None:
    looked("s", "--storage", uri)
    found = Mirrored(tmp_path / "again", joined(uri, "s/look"))
    assert set(found.names()) == FILES
    here, there = source_of("s", Storage.of(uri)), source_of(joined(uri, "s"), Storage.of("runs"))
    assert here.checkpoint.is_relative_to(tmp_path / "cache")
    assert (here.checkpoint, here.varied, here.data) == (there.checkpoint, there.varied, there.data)


def test_tables_of_a_folder_are_kept_in_the_store(uri: str, tmp_path: Path) -> None:
    write_images(tmp_path / "my set", 3)
    called("launch/apply.py", apply, joined(uri, "s"), str(tmp_path / "my set"), "--device", "cpu")
    found = Mirrored(tmp_path / "again", joined(uri, "s/apply/my_set"))
    assert {"index.html", "kappa.csv", "kappa.parquet", "summary.json"} <= set(found.names())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none", "--storage", "{uri}"], "There is no study 'none' in s3://"),
        (["begun", "--storage", "{uri}"], "The study 'begun' has no winner yet"),
        (["s", "--storage", "s3://key:word@bucket/runs"], "A store's address must be without passwords and keys"),
        (["s", "--storage", "no://where"], "no://where cannot be read: "),
        (["s3://bucket"], "s3://bucket must be followed by the name of a study."),
    ],
)
def test_look_refuses(
    words: list[str], message: str, uri: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.format(uri=uri) for word in words]
    assert "word@" not in assert_refused("launch/look.py", look, given, message, monkeypatch, capsys)


def test_the_board_of_a_store_needs_the_tracking_uri(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = "s3://bucket/runs"
    words = ["--storage", uri, "--export", str(tmp_path / "site")]
    message = f"An MLflow server must be named for studies in {uri}"
    assert_refused("launch/board.py", board, words, message, monkeypatch, capsys)
    secret = ["--storage", "s3://key:word@bucket/runs", *words[2:]]
    told = assert_refused("launch/board.py", board, secret, "must be without passwords", monkeypatch, capsys)
    assert "word@" not in told
    words += ["--tracking-uri", f"sqlite:///{tmp_path}/none.db"]
    assert_refused(
        "launch/board.py", board, words, f"There is no tracking database {tmp_path}/none.db", monkeypatch, capsys
    )
    assert not (tmp_path / "cache").exists()
