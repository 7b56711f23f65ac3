"""One rule for the model that a winner becomes: its training on the report seeds, where one has finished."""

from dataclasses import replace
from pathlib import Path

import pytest

from pcl.config.failure import Failure, FailureKind
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.ledger.study_storage import Storage, storage_of
from pcl.studies.results.trained_winner import checkpoint_of, trained_winner
from pcl.studies.space.trial import REPLICATE_STAGE, REPORT_STAGE, Trial
from tests.support.smoke import smoke

WINNER = Trial(smoke().flat(), (1, 2), "grid")
REPORT = replace(WINNER, seeds=(4, 5), stage=REPORT_STAGE)
OTHER = replace(REPORT, config=smoke(loss__n_samples=3).flat())
FINISHED, FAILED = Result(Status.FINISHED), Result(Status.FAILED, Failure(FailureKind.DIVERGED))


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    return StudyFolder(tmp_path / "runs" / "s")


def write(study: StudyFolder, trial: Trial, result: Result | None = FINISHED) -> None:
    study.trial(trial.key).begin(trial)
    if result is not None:
        study.trial(trial.key).close(result)


def test_the_report_seeds_are_handed_over_once_they_have_finished(study: StudyFolder) -> None:
    def taken() -> str:
        folder, checkpoint = trained_winner(study, WINNER.key)
        assert checkpoint == folder.checkpoint
        return folder.key

    write(study, WINNER)
    write(study, OTHER)
    write(study, replace(WINNER, seeds=(7,), stage=REPLICATE_STAGE))
    assert taken() == WINNER.key
    write(study, REPORT, None)
    assert taken() == WINNER.key
    study.trial(REPORT.key).close(FAILED)
    assert taken() == WINNER.key
    study.trial(REPORT.key).close(FINISHED)
    assert taken() == WINNER.key  # its checkpoint is not here
    study.trial(REPORT.key).checkpoint.touch()
    assert taken() == REPORT.key
    (study.trial(OTHER.key).path / "trial.json").write_text("{")
    assert taken() == REPORT.key


def test_a_trial_that_was_taken_over_has_its_checkpoint_in_the_other_study(study: StudyFolder) -> None:
    write(study, WINNER, replace(FINISHED, reused_from="first"))
    own = study.trial(WINNER.key)
    assert checkpoint_of(study, own) == own.checkpoint
    killed = study.beside("a killed one").trial(WINNER.key)  # with a part of the training
    killed.begin(WINNER)
    killed.checkpoint.touch()
    first = study.beside("first").trial(WINNER.key)
    first.begin(WINNER)
    first.checkpoint.touch()
    assert checkpoint_of(study, own) == first.checkpoint
    own.checkpoint.touch()
    assert checkpoint_of(study, own) == own.checkpoint


def test_the_storage_of_a_study_keeps_the_stores_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCL_CACHE", str(tmp_path))
    storage = Storage.of("s3://bucket/mine?endpoint_override=http://minio:9000")
    assert str(storage_of(storage.study("s"))) == str(storage)
    assert storage_of(StudyFolder(tmp_path / "runs" / "s")).path == tmp_path / "runs"
