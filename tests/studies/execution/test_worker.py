"""A trial as a worker runs it, without Ray: side by side, out of memory, taken over, with no GPU, nowhere to write."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from pcl.losses.base import DEFAULT_CHUNK_SIZE
from pcl.studies.execution import worker
from pcl.studies.execution.worker import GpuLost, Job
from pcl.studies.ledger.folders import Row, Status, StudyFolder, TrialFolder
from pcl.studies.space.trial import Trial
from pcl.training.run import Run
from pcl.training.steps.training_step import TrainingStep
from tests.support.reporting import Told, run_jobs
from tests.support.smoke import smoke

METRIC = "eval/kappa_rank_corr"


@pytest.fixture
def study(tmp_path: Path) -> StudyFolder:
    (tmp_path / "study").mkdir()
    return StudyFolder(tmp_path / "study")


def begin(study: StudyFolder, *trials: Trial, told: Told | None = None) -> list[TrialFolder]:
    folders = [study.trial(trial.key) for trial in trials]
    jobs = [Job(trial, str(folder.path), METRIC) for trial, folder in zip(trials, folders, strict=True)]
    run_jobs([Job.of(job.as_config()) for job in jobs], told)
    return folders


def status_of(folder: TrialFolder) -> Status:
    result = folder.result()
    assert result is not None
    return result.status


def test_of_trials_side_by_side_each_ends_for_itself(study: StudyFolder) -> None:
    """One fails, one has ended before their worker died, one is as it would be alone."""
    fine, failing, done = (
        Trial(smoke(**values).flat(), (1,), "grid")
        for values in ({}, {"training__kappa_limit": 1e-3}, {"loss__n_samples": 2})
    )
    (folder,) = begin(study, done)
    before = folder.result()
    told = Told()
    folders = begin(study, fine, failing, done, told=told)
    assert [status_of(folder) for folder in folders] == [Status.FINISHED, Status.FAILED, Status.FINISHED]
    assert folders[2].result() == before
    reports = [told_one for told_one in told if "batch" in told_one]
    assert [report["folder"] for report in reports].count(str(folders[0].path)) == len(folders[0].rows()) == 2
    ends = [told_one for told_one in told if "batch" not in told_one]
    assert sorted(end["folder"] for end in ends) == sorted(str(folder.path) for folder in folders[:2])


def test_out_of_memory_is_tried_again_in_smaller_chunks(study: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """And goes on from where it was, to the same numbers."""
    trial = Trial(smoke().flat(), (1,), "grid")
    expected = [report.by_seed[1]["train/loss"] for report in Run(trial.run_config, (1,))]
    chunk_sizes, moments, set_chunk_size = [], Run.moments, TrainingStep.set_chunk_size

    def seen(step: TrainingStep, chunk_size: int) -> None:
        chunk_sizes.append(chunk_size)
        set_chunk_size(step, chunk_size)

    def starved(run: Run) -> Any:
        for moment in moments(run):
            yield moment
            if moment is not None and len(chunk_sizes) == 1:
                raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(TrainingStep, "set_chunk_size", seen)
    monkeypatch.setattr(Run, "moments", starved)
    (folder,) = begin(study, trial)
    assert status_of(folder) is Status.FINISHED
    assert chunk_sizes == [DEFAULT_CHUNK_SIZE, DEFAULT_CHUNK_SIZE // 16]
    assert [row.by_seed[1]["train/loss"] for row in folder.rows()] == pytest.approx(expected, rel=1e-6)


def faulty_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every training fail after its first report, as by another process's fault under MPS."""
    moments = Run.moments

    def faulty(run: Run) -> Any:
        for moment in moments(run):
            yield moment
            if moment is not None:
                raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered\nin detail")

    monkeypatch.setattr(Run, "moments", faulty)


def test_a_trial_whose_gpu_is_lost_is_left_to_another_worker(
    study: StudyFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = Trial(smoke().flat(), (1,), "grid")
    expected = [report.by_seed[1]["train/loss"] for report in Run(trial.run_config, (1,))]
    with monkeypatch.context() as patch:
        faulty_run(patch)
        patch.setattr(worker, "is_gpu_lost", lambda device: True)
        with pytest.raises(GpuLost, match=r"^CUDA error: an illegal memory access was encountered$"):
            begin(study, trial)
    folder = study.trial(trial.key)
    assert folder.result() is None
    assert len(folder.rows()) == 1
    begin(study, trial)
    assert status_of(folder) is Status.FINISHED
    assert [row.by_seed[1]["train/loss"] for row in folder.rows()] == expected


def test_an_error_after_which_the_gpu_works_is_the_trials(study: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty_run(monkeypatch)
    (folder,) = begin(study, Trial(smoke().flat(), (1,), "grid"))
    result = folder.result()
    assert result is not None
    assert "illegal memory access" in result.cause


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (None, False),
        (torch.OutOfMemoryError("full"), False),
        (torch.AcceleratorError("CUDA error: unspecified launch failure"), True),
    ],
)
def test_a_gpu_that_refuses_the_simplest_operation_is_lost(
    error: Exception | None, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer(*_: Any, **__: Any) -> torch.Tensor:
        if error is not None:
            raise error
        return torch.tensor(1.0)

    monkeypatch.setattr(torch, "ones", answer)
    assert worker.is_gpu_lost("cuda") is is_lost
    assert not worker.is_gpu_lost("cpu")


@pytest.mark.gpu
def test_an_assertion_of_a_kernel_loses_the_gpu() -> None:
    """In a process of its own, which cannot use the GPU afterwards."""
    program = """
import os
import torch
from pcl.studies.execution.worker import is_gpu_lost
before = is_gpu_lost("cuda")
try:
    torch.zeros(2, device="cuda")[torch.tensor([5], device="cuda")].item()
except RuntimeError:
    print(before, is_gpu_lost("cuda"), flush=True)
os._exit(0)  # without CUDA's own end, which fails
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["False", "True"]


def test_a_trial_that_another_took_over_is_left_to_it(study: StudyFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(smoke().flat(), (1,), "grid")
    publish = TrialFolder.publish

    def lose(folder: TrialFolder, row: Row, token: str) -> None:
        publish(folder, row, token)
        folder.claim()

    monkeypatch.setattr(TrialFolder, "publish", lose)
    (folder,) = begin(study, trial)
    assert folder.result() is None
    assert len(folder.rows()) == 1


def test_a_trial_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    told = Told()
    begin(StudyFolder(tmp_path / "nowhere"), Trial(smoke().flat(), (1,), "grid"), told=told)
    (cause,) = told.of("unwritable")
    assert "which must be shared" in cause
