"""`--runner inline`: a study in this process has the folders, records and winner of one on Ray."""

import pytest

from launch.grid import main
from tests.support.commands import called
from tests.support.services import GRID, INLINE, LONG, ONE_WORKER, Home, check_records, on_disk, summary_of

EXPECTED_SECONDS = 20


def files_of(place: Home, name: str) -> dict[str, set[str]]:
    """Of the study and of each trial; without what is a driver's own."""
    study = place.study(name)
    own = {path.name for path in study.path.iterdir()} - {"ray", ".lock"}
    return {"": own, **{trial.key: {path.name for path in trial.path.iterdir()} for trial in study.trials()}}


@pytest.mark.slow
def test_a_study_inline_is_one_on_ray(joined: Home) -> None:
    space = joined.space("tiny", GRID)
    words = ("--space", space, "--scale", "smoke", "--seeds", "1,2")
    inline = joined.run(*words, "--name", "inline", *INLINE)
    assert "Ray" not in inline.said
    joined.run(*words, "--name", "ray", "--rerun", *ONE_WORKER)
    inside, outside = joined.study("inline"), joined.study("ray")
    assert on_disk(inside) == on_disk(outside)
    assert files_of(joined, "inline") == files_of(joined, "ray")
    assert summary_of(inside)["best"]["key"] == summary_of(outside)["best"]["key"]
    check_records(inside, joined.storage)
    check_records(outside, joined.storage)


def test_stopped_it_says_how_to_go_on_and_does(place: Home) -> None:
    space = place.space("tiny", {"grid": {"loss.n_samples": [2, 4]}}, LONG)
    words = ("--space", space, "--scale", "smoke", "--name", "s", *INLINE)
    refused = called("launch/grid.py", main, *map(str, words), "--max-concurrent", "2", "--storage", str(place.storage))
    assert refused.returncode == 2
    assert "is for the runner ray" in refused.stderr
    place.run(*words, "--time-budget", "0.0001", code=1)
    resumed = place.run("--resume", "s", *INLINE)
    assert "Ray" not in resumed.said
    records = check_records(place.study("s"), place.storage)
    assert records.statuses() == {"FINISHED": 2}
