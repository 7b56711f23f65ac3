"""A study that is killed before and after each write ends with the records of one that was not."""

import functools
import os
import re
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pcl.storage.mirror import mirror_of
from pcl.studies.execution.inline_runner import InlineRunner
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.trial_execution import Choices, Execution
from pcl.studies.ledger.folders import Status, StudyFolder
from pcl.studies.space.search_space import Objective
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.finished_trials import Found
from tests.studies.results.test_asha import Driven
from tests.support.crash_points import Act, crash_points, crash_states, nothing
from tests.support.searches import GRID, Driver, spec_of
from tests.support.smoke import smoke

EXPECTED_SECONDS = 30
METRIC = "eval/kappa_rank_corr"
TRIALS = [Trial(smoke(loss__n_samples=n).flat(), (1,), "grid", {"loss.n_samples": n}) for n in (2,)]
ELSEWHERE = {1: {METRIC: 0.25, "train/loss": 1.5, "time/train_s": 2.0}}
Records = dict[str, Any]
Study = Callable[[Path], StudyFolder]


def in_folder(path: Path) -> StudyFolder:
    return StudyFolder(path / "study")


def in_store(path: Path) -> StudyFolder:
    return StudyFolder(path / "copy", mirror_of(path / "copy", (path / "store" / "study").as_uri()))


def drive(path: Path, study: Study, *, is_rerun: bool = False, is_elsewhere: bool = False) -> None:
    """Bring the trials to their end in this process, as a driver and its workers would."""
    folder = study(path)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.pull()
    folder.repair()
    found = Found("other", "run", ELSEWHERE, {})
    tracker: Any = SimpleNamespace(finished=lambda _: found if is_elsewhere else None, last_batch=lambda _: 8)
    recorder: Any = SimpleNamespace(submit=lambda _: None, errors={})
    choices = Choices(InlineRunner(Resources()), is_rerun=is_rerun)
    told: list[str] = []
    Execution(Objective(METRIC), folder, tracker, recorder, choices, Interrupt(), told.append).run_all(TRIALS, "grid")


def records(path: Path, study: Study) -> dict[str, Records]:
    """Return what the folders say; of a store, as a driver elsewhere sees it."""
    folder = study(path)
    if folder.mirror.uri:
        folder = StudyFolder(path / "elsewhere", mirror_of(path / "elsewhere", folder.mirror.uri))
        folder.pull()
    return {trial.key: recorded(folder, trial) for trial in TRIALS}


def recorded(study: StudyFolder, trial: Trial) -> Records:
    folder = study.trial(trial.key)
    result = folder.result()
    assert result is not None
    assert folder.trial() == trial
    rows = [
        (row.batch, {seed: {k: v for k, v in m.items() if "time/" not in k} for seed, m in row.by_seed.items()})
        for row in folder.rows()
    ]
    left = {path.name for path in folder.path.iterdir() if path.suffix == ".tmp" or "damaged" in path.name}
    return {"status": result.status, "from": result.reused_from, "rows": rows, "left": left}


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PCL_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("study", [in_folder, in_store])
@pytest.mark.parametrize(
    "case",
    [
        "taken over",
        pytest.param("trained", marks=pytest.mark.slow),
        pytest.param("run again", marks=pytest.mark.slow),
        pytest.param("run again, taken over before", marks=pytest.mark.slow),
    ],
)
def test_killed_at_any_write_a_study_is_resumed_to_the_same_records(
    case: str, study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    is_elsewhere, is_rerun = case == "taken over", case.startswith("run again")
    prepare = functools.partial(drive, study=study, is_elsewhere=case.endswith("before")) if is_rerun else nothing
    act = functools.partial(drive, study=study, is_rerun=is_rerun, is_elsewhere=is_elsewhere)
    expected = undisturbed(tmp_path / "whole", prepare, act, study)
    assert [record["status"] for record in expected.values()] == [Status.FINISHED]
    assert [record["from"] for record in expected.values()] == ["other" if is_elsewhere else ""]
    outcomes = []
    for folder in crash_states(tmp_path / "points", act, prepare):
        act(folder)
        outcomes.append(records(folder, study))
    with capsys.disabled():
        print(f"\n{case}, {study.__name__}: {len(outcomes)} crash points", end="")
    assert len(outcomes) >= 8
    assert [outcome for outcome in outcomes if outcome != expected] == []


@pytest.mark.slow
@pytest.mark.parametrize("study", [in_folder, in_store])
def test_killed_while_it_reopens_a_trial_a_study_may_be_resumed_without_that(study: Study, tmp_path: Path) -> None:
    """It then trains what was reopened, and only that."""
    prepare = functools.partial(drive, study=study)
    expected = undisturbed(tmp_path / "whole", nothing, prepare, study)
    again = functools.partial(drive, study=study, is_rerun=True)
    folders = crash_states(tmp_path / "points", again, prepare)
    assert len(folders) >= 8
    for folder in folders:
        prepare(folder)
        assert records(folder, study) == expected


def undisturbed(path: Path, prepare: Act, act: Act, study: Study) -> dict[str, Records]:
    path.mkdir()
    prepare(path)
    act(path)
    return records(path, study)


def test_killed_while_a_trial_is_stopped_early(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It goes on or has been stopped, at its last report; it never counts as finished."""

    Driven(tmp_path / "before" / "study").train(0, [0.9] * 10)
    prepare = functools.partial(shutil.copytree, tmp_path / "before", dirs_exist_ok=True)

    def stop(path: Path) -> None:
        assert Driven(path / "study").train(1, [-1.0] * 10)[0] == "STOP"

    n_tried = 0
    for path in crash_states(tmp_path / "points", stop, prepare):
        n_tried += 1
        stage = Driven(path / "study")
        trial = stage.trial(1)
        folder = stage.folder.trial(trial.key)
        assert folder.repair() == []
        result, rows = folder.result(), folder.rows()
        assert [row.batch for row in rows] == [10 * i for i in range(1, len(rows) + 1)]
        if result is not None:
            assert (result.status, len(rows)) == (Status.STOPPED, 6)
            continue
        _, folder = stage.train(1, [-1.0] * 10, start=len(rows))
        assert folder.repair() == []
        assert folder.result() is not None
    with capsys.disabled():
        print(f"\nstopped early: {n_tried} crash points", end="")
    assert n_tried >= 10


@pytest.mark.slow
def test_killed_at_some_writes_of_optuna_a_search_comes_to_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As many trials as asked for, none twice, and the database says of each what its folder says."""
    n_trials, n_tried = 3, 0
    spec = spec_of(GRID, n=n_trials)

    def search(path: Path) -> None:
        Driver(GRID, spec, path / "s").run()

    for path in crash_states(tmp_path / "points", search, nothing, every=3):
        n_tried += 1
        search(path)
        driver = Driver(GRID, spec, path / "s")
        assert driver.proposer.next() is None
        assert len(set(driver.keys)) == n_trials
        told = {t.user_attrs["trial"]: t.values for t in driver.optuna().trials if t.state.name == "COMPLETE"}
        assert [t.number for t in driver.optuna().trials if not t.state.is_finished()] == []
        in_folders = {f.key: [f.rows()[-1].by_seed[1][METRIC]] for f in driver.folder.trials()}
        assert told == in_folders
        assert len(told) == n_trials
    with capsys.disabled():
        print(f"\nOptuna: {n_tried} crash points", end="")
    assert n_tried >= 14


@pytest.mark.parametrize("kinds", [crash_points, crash_states])
def test_the_hook_sees_what_is_written(kinds: Callable[..., Iterable[Path]], tmp_path: Path) -> None:
    def write(path: Path) -> None:
        (path / "a").write_text("1")
        (path / "a").rename(path / "b")
        os.link(path / "b", path / "c")
        (path / "b").unlink()
        (path / "c").read_text()
        with (path / "d").open("w") as file:
            file.write("not on disk before it is flushed")
            (path / "c").unlink()

    found = [sorted(p.name for p in path.iterdir()) for path in kinds(tmp_path / "points", write, nothing)]
    assert found == [[], ["a"], ["b"], ["b", "c"], ["c"], ["c", "d"]]
    assert (tmp_path / "points" / "6" / "d").read_text() == ""


def test_a_killed_study_leaves_what_is_copied(tmp_path: Path) -> None:
    act, found = functools.partial(drive, study=in_store, is_elsewhere=True), []
    for kinds in (crash_points, crash_states):
        folders: Iterable[Path] = kinds(tmp_path / kinds.__name__, act)
        found.append([sorted(_name(file.relative_to(folder)) for file in folder.rglob("*")) for folder in folders])
    assert len(found[0]) >= 8
    assert found[0] == found[1]


def _name(path: Path) -> str:
    """Return a path without processes and what is drawn."""
    return re.sub("[0-9a-f]*[0-9][0-9a-f]*", "", str(path))
