"""A file beside the trials that a killed driver was writing is named, and goes when the study is resumed."""

from pathlib import Path

from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.verification.problem import Remedy
from tests.studies.verification.test_verifier import searched, verified


def test_an_unfinished_file_of_the_study_is_found_and_cleared(tmp_path: Path) -> None:
    searched(tmp_path)
    left = tmp_path / "first" / ".summary.json.999999999.abcdef01.tmp"
    left.touch()
    assert StudyFolder(tmp_path / "first").unfinished() == [left]
    (problem,) = verified(tmp_path).problems
    assert (problem.where, problem.remedy) == (str(left), Remedy.RESUME)
    searched(tmp_path)
    assert verified(tmp_path).is_sound
    assert not left.exists()
