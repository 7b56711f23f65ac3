"""Files of a trial that cannot be used: they are set aside, and the trial comes to the same numbers."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from pcl.studies.execution import ray_runner
from pcl.studies.execution.inline_runner import InlineRunner
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.ray_runner import RayRunner
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.runner import Assignment, Source
from pcl.studies.execution.trial_execution import Choices, Execution
from pcl.studies.execution.worker import Job
from pcl.studies.ledger.folders import PREVIOUS, Damaged, Lost, Result, Row, Status, StudyFolder, TrialFolder
from pcl.studies.ledger.opened_study import opened
from pcl.studies.results.reuse import is_lost
from pcl.studies.space.search_space import Objective
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.finished_trials import Found
from pcl.training.checkpoint import read_checkpoint
from pcl.training.run import Run
from tests.support.crash_points import crash_states
from tests.support.reporting import Told, run_jobs
from tests.support.searches import GRID, spec_of
from tests.support.smoke import smoke

METRIC = "eval/kappa_rank_corr"
TRIAL = Trial(smoke(training__n_batches=6, training__eval_every=2).flat(), (1,), "grid")
OTHER = Trial(smoke(training__n_batches=6, training__eval_every=2, loss__kappa_pos=7.0).flat(), (1,), "grid")
TOLD = Told()


@pytest.fixture
def told() -> Told:
    """What workers say."""
    TOLD.clear()
    return TOLD


def losses(folder: TrialFolder) -> list[float]:
    return [row.by_seed[1]["train/loss"] for row in folder.rows()]


def train(study: StudyFolder, trial: Trial = TRIAL) -> TrialFolder:
    study.path.mkdir(parents=True, exist_ok=True)
    folder = study.trial(trial.key)
    run_jobs([Job(trial, str(folder.path), METRIC)], TOLD)
    return folder


@pytest.fixture(scope="module")
def died(tmp_path_factory: pytest.TempPathFactory) -> TrialFolder:
    """A trial whose worker died after four of six batches, with a checkpoint of these and of the first two."""
    publish = TrialFolder.publish

    def published(folder: TrialFolder, row: Row, token: str) -> None:
        if row.batch == 6:
            raise Lost("killed")
        publish(folder, row, token)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrialFolder, "end", lambda *_: None)
        patch.setattr(TrialFolder, "publish", published)
        patch.setattr("pcl.training.checkpoint._SAVING_FACTOR", 0.0)
        folder = train(StudyFolder(tmp_path_factory.mktemp("died")))
    assert [row.batch for row in folder.rows()] == [2, 4]
    assert read_checkpoint(folder.checkpoint)["batch"] == 4
    assert read_checkpoint(folder.path / PREVIOUS)["batch"] == 2
    return folder


@pytest.fixture
def half(died: TrialFolder, tmp_path: Path, told: Told) -> TrialFolder:
    """A copy of it."""
    folder = StudyFolder(tmp_path / "half").trial(died.key)
    shutil.copytree(died.path, folder.path)
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return losses(train(StudyFolder(tmp_path_factory.mktemp("whole"))))


def resumed(half: TrialFolder, expected: list[float]) -> TrialFolder:
    folder = train(StudyFolder(half.path.parents[1]))
    result = folder.result()
    assert result is not None
    assert result.status is Status.FINISHED
    assert losses(folder) == expected
    assert not (folder.path / PREVIOUS).exists()
    return folder


def flip(path: Path, share: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(share * len(content))] ^= 0x10
    path.write_bytes(bytes(content))


def refusal(path: Path) -> str:
    try:
        read_checkpoint(path)
    except ValueError as error:
        return str(error)
    return ""


def test_a_flipped_bit_never_changes_a_number(
    half: TrialFolder, expected: list[float], told: Told, tmp_path: Path
) -> None:
    """Wherever it is: the checkpoint is refused, or what it says is what it said."""
    before = torch.load(half.checkpoint, weights_only=True)
    refused = []
    for share in ((i + 0.5) / 40 for i in range(40)):
        copy = tmp_path / "flipped.pt"
        shutil.copyfile(half.checkpoint, copy)
        flip(copy, share)
        if said := refusal(copy):
            assert str(copy) in said
            refused.append(share)
            continue
        content = read_checkpoint(copy)
        torch.testing.assert_close(content["stepper"]["encoder"], before["stepper"]["encoder"], rtol=0, atol=0)
        assert content["config"] == before["config"]
    assert len(refused) >= 20
    flip(half.checkpoint, refused[len(refused) // 2])
    folder = resumed(half, expected)
    assert [path.name.startswith("checkpoint.pt.damaged-") for path in folder.path.glob("*damaged*")] == [True]
    (note,) = told.of("note")
    assert str(half.checkpoint) in note


@pytest.mark.parametrize("damage", ["truncated", "empty", "another configuration's", "another's seeds"])
def test_a_bad_checkpoint_is_set_aside(
    damage: str, half: TrialFolder, expected: list[float], told: Told, tmp_path: Path
) -> None:
    path = half.checkpoint
    if damage == "truncated":
        path.write_bytes(path.read_bytes()[:-2000])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "another configuration's":
        shutil.copyfile(train(StudyFolder(tmp_path / "other"), OTHER).checkpoint, path)
    else:
        Run(TRIAL.run_config, (2,)).save(path)
    told.clear()
    resumed(half, expected)
    notes = told.of("note")
    assert len(notes) == 1
    assert str(path) in notes[0]


def test_where_both_checkpoints_are_bad_a_trial_starts_again(half: TrialFolder, expected: list[float]) -> None:
    half.checkpoint.write_bytes(b"no")
    (half.path / PREVIOUS).write_bytes(b"no")
    resumed(half, expected)


@pytest.mark.parametrize("name", ["trial.json", "reports.json", "result.json"])
@pytest.mark.parametrize("content", ["", '{"batch": 4', '[{"batch": 4}]', "3"])
def test_a_bad_record_is_set_aside(name: str, content: str, half: TrialFolder, expected: list[float]) -> None:
    (half.path / name).write_text(content)
    read = {"trial.json": half.trial, "reports.json": half.rows, "result.json": half.result}[name]
    with pytest.raises(Damaged, match=name):
        read()
    (sentence,) = half.repair()
    assert str(half.path / name) in sentence
    assert (half.path / "trial.json").exists() == (name != "trial.json")
    assert half.result() is None
    assert half.checkpoint.exists() == (name != "reports.json")  # the reports before it cannot be had from it
    resumed(half, expected)


def test_a_finished_trial_without_its_last_report_runs_again(half: TrialFolder, expected: list[float]) -> None:
    half.close(Result(Status.FINISHED))
    (sentence,) = half.repair()
    assert "without a report of its last batch" in sentence
    assert (half.result(), half.rows(), half.checkpoint.exists()) == (None, [], False)
    resumed(half, expected)


def test_killed_while_it_is_repaired_a_trial_still_has_all_its_reports(
    half: TrialFolder, expected: list[float], tmp_path: Path
) -> None:
    """Also where its checkpoint is of the last batch, so that nothing would be left to train."""
    run = Run.restore(half.checkpoint)
    for _ in run:
        pass
    run.save(half.checkpoint)

    def prepare(path: Path) -> None:
        shutil.copytree(half.path, path / "study" / "trials" / half.key)
        (path / "study" / "trials" / half.key / "reports.json").write_text("[")

    n_tried = 0
    for path in crash_states(tmp_path / "points", lambda path: StudyFolder(path / "study").repair(), prepare):
        n_tried += 1
        StudyFolder(path / "study").repair()
        assert losses(train(StudyFolder(path / "study"))) == expected
    assert n_tried >= 5


def test_a_late_worker_writes_nothing_to_a_trial_that_was_reopened(half: TrialFolder, expected: list[float]) -> None:
    late = half.claim()
    row = half.rows()[-1]
    half.reopen()
    with pytest.raises(Lost):
        half.publish(row, late)
    run = Run(TRIAL.run_config, (1,))
    for _ in run:
        pass
    run.save(half.checkpoint)  # it was about to when it lost the trial
    resumed(half, expected)


@pytest.mark.parametrize("name", ["trial.json", "reports.json", "result.json"])
def test_a_driver_repairs_a_study_before_anything_reads_it(
    name: str, half: TrialFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    study = StudyFolder(half.path.parents[1])
    spec = spec_of(GRID)
    with opened(study, spec):
        pass
    (half.path / name).write_text("{")
    with opened(study, spec):
        assert half.result() is None
        assert len(half.rows()) == (0 if name == "reports.json" else 2)
    assert str(half.path / name) in capsys.readouterr().err


def test_a_checkpoint_of_another_format_or_without_a_part_is_refused(half: TrialFolder) -> None:
    content = read_checkpoint(half.checkpoint)
    for changed in ({**content, "format": 1}, {key: value for key, value in content.items() if key != "seeds"}):
        torch.save(changed, half.checkpoint)
        assert "is not a checkpoint" in refusal(half.checkpoint)


def test_reports_are_in_the_order_of_their_batches(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path / "trials" / TRIAL.key)
    folder.begin(TRIAL)
    rows = [Row(batch, 12, 1, 0.1, {1: {"train/loss": float(batch)}}, {}) for batch in (12, 4, 8)]
    (folder.path / "reports.json").write_text(json.dumps([row.as_json() for row in rows]))
    assert losses(folder) == [4.0, 8.0, 12.0]


def test_a_record_that_is_not_of_the_whole_training_is_not_reused(tmp_path: Path) -> None:
    study, by_seed = StudyFolder(tmp_path), {1: {METRIC: 0.5, "train/loss": 1.0}}
    tracker: Any = SimpleNamespace(finished=lambda _: Found("other", "run", by_seed, {}), last_batch=lambda _: 4)
    told: list[str] = []
    execution = Execution(
        Objective(METRIC), study, tracker, SimpleNamespace(), Choices(InlineRunner(Resources())),  # type: ignore[arg-type]
        Interrupt(), told.append,
    )  # fmt: skip
    execution.reuse(TRIAL)
    assert study.trial(TRIAL.key).result() is None
    tracker.last_batch = lambda _: 6
    execution.reuse(TRIAL)
    result = study.trial(TRIAL.key).result()
    assert result is not None
    assert (result.reused_from, study.trial(TRIAL.key).rows()[-1].by_seed) == ("other", by_seed)
    text = (study.trial(TRIAL.key).path / "result.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["row"]["seconds"] == "nan"  # the record did not tell them


def test_a_trial_that_a_late_worker_took_is_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own worker ends without a result; if the second one does too, a resumed study runs it."""
    study = StudyFolder(tmp_path / "study")
    n_fits = []

    def fit(runner: RayRunner, source: Source, *_: object) -> None:
        for trial in iter(source.next, None):
            folder = study.trial(trial.key)
            folder.begin(trial)
            if n_fits:
                folder.close(Result(Status.FINISHED))
        n_fits.append(1)

    monkeypatch.setattr(RayRunner, "_fit", fit)
    monkeypatch.setattr(ray_runner, "available_resources", lambda: {"CPU": 1.0})
    listener: Any = SimpleNamespace(ended=lambda _: None)
    assignment = Assignment(study, "x", listener, Interrupt())
    RayRunner(Resources()).run_trials([TRIAL], assignment)
    assert len(n_fits) == 2
    result = study.trial(TRIAL.key).result()
    assert result is not None
    assert result.status is Status.FINISHED
    monkeypatch.setattr(RayRunner, "_fit", lambda *_: None)
    RayRunner(Resources()).run_trials([OTHER], assignment)
    assert is_lost(study.trial(OTHER.key).result())
