"""`--runner inline`: a study in this process has the folders, records and winner of one on Ray."""

from collections.abc import Iterator

import pytest

from tests.support.services import GRID, LONG, Home, check_records, home, on_disk, summary_of


@pytest.fixture
def base() -> Iterator[Home]:
    with home() as found:
        yield found


def files_of(base: Home, name: str) -> dict[str, set[str]]:
    """Of the study and of each trial; without what is a driver's own."""
    study = base.study(name)
    own = {path.name for path in study.path.iterdir()} - {"ray", ".lock"}
    return {"": own, **{trial.key: {path.name for path in trial.path.iterdir()} for trial in study.trials()}}


def test_a_study_inline_is_one_on_ray(base: Home) -> None:
    space = base.space("tiny", GRID)
    words = ("--space", space, "--scale", "smoke", "--seeds", "1,2")
    inline = base.run(*words, "--name", "inline", "--runner", "inline")
    assert "Ray" not in inline.said
    base.run(*words, "--name", "ray", "--rerun")
    inside, outside = base.study("inline"), base.study("ray")
    assert on_disk(inside) == on_disk(outside)
    assert files_of(base, "inline") == files_of(base, "ray")
    assert summary_of(inside)["best"]["key"] == summary_of(outside)["best"]["key"]
    check_records(inside, base.storage)
    check_records(outside, base.storage)


def test_stopped_it_says_how_to_go_on_and_does(base: Home) -> None:
    space = base.space("tiny", {"grid": {"loss.n_samples": [2, 4]}}, LONG)
    words = ("--space", space, "--scale", "smoke", "--name", "s", "--runner", "inline")
    refused = base.run(*words, "--max-concurrent", "2", code=2)
    assert "is for `--runner ray`" in refused.errors
    base.run(*words, "--time-budget", "0.0001", code=1)
    resumed = base.run("--resume", "s", "--runner", "inline")
    assert "Ray" not in resumed.said
    records = check_records(base.study("s"), base.storage)
    assert records.statuses() == {"FINISHED": 2}
