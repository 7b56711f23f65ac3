"""`launch/grid.py --scheduler asha`: what it refuses, and a study with real Ray."""

import sys
from pathlib import Path

import pytest

from launch.grid import main
from launch.shared.command import run
from pcl.studies.ledger.folders import Status
from tests.support.searches import METRIC, OTHER
from tests.support.services import BASE, INLINE, ONE_WORKER, Home, Records, summary_of

SECONDS = 15


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--scheduler", "pbt"], "no configuration stands for what one has reached; take `--scheduler asha`"),
        (["--scheduler", "asha", "--objectives", f"{METRIC},{OTHER}"], "`--scheduler asha` goes by one metric"),
    ],
)
def test_what_does_not_go_with_it_is_refused_in_one_sentence(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["g", "--space", "toy_elk", *words, "--storage", str(tmp_path / "runs")])
    with pytest.raises(SystemExit) as ended:
        run(main)
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert message in told
    assert len(told.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_a_grid_with_asha_and_then_one_without(joined: Home) -> None:
    """With Ray and MLflow: what was stopped is recorded as such, and no later grid takes it for finished."""
    base = {**BASE, "training.n_batches": 36, "training.eval_every": 2, "training.phases": "joint"}
    space = joined.space("rates", {"grid": {"training.lr": [3e-3, 1e-3, 1e-8]}}, base)
    options = ["--space", space, "--scale", "smoke"]
    joined.run(*options, "--name", "asha", "--scheduler", "asha", *ONE_WORKER)
    folder = joined.study("asha")
    results = {trial.key: trial.result() for trial in folder.trials()}
    early = {key for key, result in results.items() if result is not None and result.status is Status.STOPPED}
    assert len(results) == 3
    assert early
    runs = {run.data.tags["pcl.trial"]: run for run in Records(joined.storage, "asha").runs("trial")}
    for key, found in runs.items():
        assert found.info.status == ("KILLED" if key in early else "FINISHED")
        assert ("pcl.stopped_early" in found.data.tags) == (key in early)
        assert ("objective" in found.data.metrics) == (key not in early)
    assert summary_of(folder)["best"]["key"] not in early

    said = joined.run(*options, "--name", "grid", *INLINE).said
    assert f"(3 trials, {3 - len(early)} known)" in said
    assert all(entry["status"] == "finished" for entry in summary_of(joined.study("grid"))["stages"]["grid"])
