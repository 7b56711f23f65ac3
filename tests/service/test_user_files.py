"""A user's own loss, encoder and task in a study, in this process and on a real Ray, whose workers load the files."""

from pathlib import Path

import pytest

from pcl.studies.ledger.folders import Status
from tests.support.services import BASE, INLINE, ONE_WORKER, Home, check_records
from tests.support.user_parts import ENCODER, LOSS, TASK, written

EXPECTED_SECONDS = 15
SPACE = """
from pcl.studies.space import Objective, SearchSpace, Stage
SPACE = SearchSpace(
    "own", {loss!r}, (Stage("grid", {{"loss.margin": [0.5, 1.0]}}),), {base!r}, Objective("eval/kappa_rank_corr"),
    task={task!r}, encoder={encoder!r},
)
"""


@pytest.mark.parametrize("runner", [INLINE, pytest.param(ONE_WORKER, marks=pytest.mark.slow)], ids=["inline", "ray"])
def test_a_study_of_users_files_runs_and_resumes(runner: tuple[str, ...], request: pytest.FixtureRequest) -> None:
    home: Home = request.getfixturevalue("place" if runner is INLINE else "joined")
    loss, encoder, task = (written(home.path, name) for name in (LOSS, ENCODER, TASK))
    base = {path: value for path, value in BASE.items() if path != "encoder.hidden"}
    space = home.path / "own.py"
    space.write_text(SPACE.format(loss=loss, encoder=encoder, task=task, base=base))
    home.run("--space", space, "--scale", "smoke", "--seeds", "1", "--name", "own", "--no-finalize", *runner)
    trials = list(home.study("own").trials())
    assert [trial.result().status for trial in trials] == [Status.FINISHED] * 2  # type: ignore[union-attr]
    assert all(row.by_seed[1]["eval/share"] == 0.25 for trial in trials for row in trial.rows())
    check_records(home.study("own"), home.storage)

    for trial in trials:  # the driver died before they ended
        (trial.path / "result.json").unlink()
    home.run("--resume", "own", *INLINE)
    assert [trial.result().status for trial in home.study("own").trials()] == [Status.FINISHED] * 2  # type: ignore[union-attr]

    Path(loss.rpartition(":")[0]).write_text("")
    refused = home.run("--resume", "own", *INLINE, code=2)
    assert "must define `Hinge`, but does not" in refused.errors
