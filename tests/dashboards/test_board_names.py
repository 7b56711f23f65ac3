"""What trials varied is read from their tags, and of old runs from their names: the board shows the same."""

import json
from collections.abc import Mapping
from pathlib import Path

from dashboards.board.html.names import axes_of, cell_name, varied
from dashboards.board.store.records import Run, Trial, one_study
from pcl.studies.space.labels import label
from pcl.studies.tracking.database_file import FileDatabase
from pcl.studies.tracking.tags import RunState, Tag
from tests.support.board_store import Writer


def run_of(name: str, recorded: Mapping[str, object] | None) -> Trial:
    tags = {} if recorded is None else {Tag.VARIED: json.dumps(recorded)}
    return Trial(Run(name, "1", name, RunState.FINISHED, 1, 2, tags))


def test_old_names_and_tags_tell_the_same() -> None:
    every: list[dict[str, str | int | float | bool]]
    every = [{"M": "0", "training.lr": 1e-3}, {"loss.n_samples": 8, "encoder.is_deep": True}, {"cell": "D = 40"}]
    for settings in every:
        new, old = run_of("renamed", settings), run_of(label(settings), None)
        assert varied(new) == varied(old)
        assert cell_name(new) == ("D = 40" if "cell" in settings else "renamed")
    assert axes_of([run_of("lr=0.001", {"training.lr": 1e-3}), run_of("lr=0.1", None)]) == [("lr", ["0.001", "0.1"])]


def test_axes_that_end_alike_are_told_apart() -> None:
    trials = [run_of(f"a={i}", {"loss.a": i, "encoder.a": -i}) for i in (1, 2)]
    assert axes_of(trials) == [("loss.a", ["1", "2"]), ("encoder.a", ["-1", "-2"])]


def test_what_a_trial_varied_is_written_with_its_run(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    parent = writer.study("s", [writer.trial(n, (1, 2), n / 10) for n in (4, 8)], {}, 0.8)
    study = one_study(FileDatabase(tmp_path / "mlflow.db"), parent)
    assert study is not None
    assert [json.loads(trial.run.tags["pcl.varied"]) for trial in study.trials] == [{"n_samples": 4}, {"n_samples": 8}]
    told = axes_of(study.trials)
    for trial in study.trials:
        del trial.run.tags["pcl.varied"]  # as the version before left it
    assert axes_of(study.trials) == told == [("n_samples", ["4", "8"])]
