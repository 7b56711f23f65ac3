"""Names of studies on an MLflow server that several users share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import pcl
from launch import ablate, grid
from launch.testbed.processes import free_port
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.session.tracking_choice import require_free_name
from pcl.studies.tracking.store import StoreError, default_uri
from pcl.studies.tracking.tracker import Tracker
from tests.support.services import assert_refused
from tests.support.trackers import opened
from tests.support.tracking_server import prepared


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that has another user's study `taken`."""
    port = free_port()
    with prepared(tmp_path_factory.mktemp("server"), port, 1) as (server,):
        server.start()
        opened(uri := f"http://127.0.0.1:{port}", "taken")
        yield uri


def test_a_new_study_must_not_have_the_name_of_another_users(uri: str, tmp_path: Path) -> None:
    tracker, folder = Tracker(uri), StudyFolder(tmp_path / "taken")
    with pytest.raises(ValueError, match=r"has a study 'taken' of .* already, .*; give the new one a name of its own"):
        require_free_name(tracker, folder)
    require_free_name(tracker, StudyFolder(tmp_path / "free"))
    folder.path.mkdir()
    (folder.path / "study.json").touch()
    require_free_name(tracker, folder)  # this study's own run


def test_a_database_of_ones_own_may_know_the_name(tmp_path: Path) -> None:
    """As where a study's folder was deleted, to begin it anew."""
    tracker = opened(default_uri(tmp_path), "taken")
    require_free_name(tracker, StudyFolder(tmp_path / "taken"))


def test_a_server_that_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tracker = Tracker("http://127.0.0.1:1")

    def fail(_: object) -> None:
        raise StoreError("its database is away")

    monkeypatch.setattr(tracker.store, "call", fail)
    with pytest.raises(ValueError, match="cannot be used: its database is away"):
        require_free_name(tracker, StudyFolder(tmp_path / "s"))


def test_commands_refuse_such_a_name_before_any_work(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "runs"
    words = ["--name", "taken", "--scale", "smoke", "--storage", str(storage), "--tracking-uri", uri]
    for command, declared in ((grid, ["--space", "toy_elk"]), (ablate, ["--ablation", "mc_samples"])):
        told = "has a study 'taken' of"
        assert_refused("launch", command.main, [*declared, *words, "--runner", "inline"], told, monkeypatch, capsys)
    with pytest.raises(ValueError, match="has a study 'taken' of"):
        pcl.search("toy_elk", scale="smoke", name="taken", storage=storage, tracking=uri)
    assert not storage.exists()
