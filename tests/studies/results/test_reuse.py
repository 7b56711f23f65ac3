"""A result that another study has already: it takes the place of what was begun here, and of nothing that has ended."""

from pathlib import Path

import pytest

from pcl.studies.ledger.folders import Lost, Result, Row, Status, StudyFolder
from pcl.studies.results.reuse import take_over
from pcl.studies.results.selection import Outcome
from pcl.studies.space.trial import Trial
from tests.support.smoke import smoke

TRIAL = Trial(smoke(training__n_batches=6).flat(), (1,), "grid")
OUTCOME = Outcome(TRIAL, Result(Status.FINISHED), {1: {"train/loss": 0.5}}, seconds=3.0)


def test_a_result_takes_the_place_of_progress(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    folder = study.trial(TRIAL.key)
    folder.begin(TRIAL)
    token = folder.claim()
    folder.publish(Row(2, 6, 1, 0.1, {1: {"train/loss": 9.0}}, {}), token)
    folder.checkpoint.write_bytes(b"progress")
    take_over(study, TRIAL, OUTCOME, "other")
    result = folder.result()
    assert result is not None
    assert (result.status, result.reused_from) == (Status.FINISHED, "other")
    assert [(row.batch, row.n_batches, row.by_seed, row.seconds) for row in folder.rows()] == [
        (6, 6, OUTCOME.by_seed, 3.0)
    ]
    assert not folder.checkpoint.exists()  # a model of other batches than the result's
    with pytest.raises(Lost):
        folder.publish(Row(4, 6, 1, 0.1, {1: {"train/loss": 8.0}}, {}), token)


def test_a_new_trial_is_recorded_whole(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    take_over(study, TRIAL, OUTCOME, "other")
    assert study.trial(TRIAL.key).trial() == TRIAL
    assert study.trial(TRIAL.key).is_whole()


def test_a_trial_that_has_ended_here_keeps_its_result(tmp_path: Path) -> None:
    study = StudyFolder(tmp_path)
    folder = study.trial(TRIAL.key)
    folder.begin(TRIAL)
    own = Result(Status.FAILED)
    folder.close(own)
    take_over(study, TRIAL, OUTCOME, "other")
    assert folder.result() == own
