"""A whole study that is killed before any of its writes, to files or to MLflow, is mended by resuming it."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.tracking.store import Store, default_uri
from pcl.studies.verification.problem import Remedy
from tests.studies.verification.test_verifier import searched, verified
from tests.support.crash_points import crash_points

EXPECTED_SECONDS = 60


def reached(storage: Path) -> dict[str, object]:
    """Return what the trials' folders say, but for times."""
    trials = StudyFolder(storage / "first").trials()
    return {
        trial.key: [
            (row.batch, {s: {k: v for k, v in m.items() if "time/" not in k} for s, m in row.by_seed.items()})
            for row in trial.rows()
        ]
        for trial in trials
    }


@pytest.mark.parametrize(
    ("is_sql", "every"),
    [(False, 97), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(False, 23), (True, 97)])],
)
def test_resuming_mends_a_study_killed_at_any_write(every: int, is_sql: bool, tmp_path: Path) -> None:
    empty, whole = tmp_path / "empty", tmp_path / "whole"
    empty.mkdir()
    Store(default_uri(empty)).experiments("")  # MLflow takes seconds to make a database; other tests kill it at that
    prepare = partial(shutil.copytree, empty, dirs_exist_ok=True)
    prepare(whole)
    searched(whole)
    expected = reached(whole)
    n_points = 0
    for folder in crash_points(tmp_path / "points", searched, prepare, is_sql=is_sql, every=every):
        n_points += 1
        if (folder / "first" / "study.json").exists():
            assert {problem.remedy for problem in verified(folder).problems} <= {Remedy.RESUME}
        searched(folder)
        assert verified(folder).is_sound, (folder.name, verified(folder).problems)
        assert reached(folder) == expected
        shutil.rmtree(folder)
    assert n_points >= 3
