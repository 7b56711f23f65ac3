"""A trial as a worker runs it: drives `Run`, publishes reports to the trial's folder, and ends as finished or failed.

A worker imports this module and with it torch, but neither Ray, MLflow nor Optuna: its reporter is passed in.
Everything that a trial leaves behind is in its folder (see `pcl.studies.ledger.folders`): a worker that takes over a
trial goes on from the last checkpoint there. While it trains, a worker has its own copy of a folder in a
store.
"""

import math
import os
import platform
import shutil
import time
import traceback
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import torch

from pcl.config.failure import Failure, FailureKind
from pcl.config.user_files import short, trust
from pcl.losses.base import DEFAULT_CHUNK_SIZE
from pcl.metrics import names
from pcl.storage.files import first_line
from pcl.storage.mirror import mirror_of
from pcl.storage.object_stores import copy_of
from pcl.studies.execution.monitoring import GPU_MEMORY, KAPPA_MEAN, MS_PER_BATCH, OBJECTIVE, SHARE_DONE, Gauges
from pcl.studies.execution.resources import Resources
from pcl.studies.ledger.folders import CHECKPOINT, PREVIOUS, Lost, Result, Row, Status, StudyFolder, TrialFolder, now_ms
from pcl.studies.space.trial import Trial
from pcl.training.checkpoint import Saving, check_same_config, read_checkpoint
from pcl.training.diverged import Diverged
from pcl.training.run import Report, Run

# After running out of memory a trial goes on, once, with chunks of a 16th: same numbers, less memory.
_SMALL_CHUNK_SIZE = DEFAULT_CHUNK_SIZE // 16


class Unwritable(OSError):
    """A trial's files cannot be written."""


class GpuLost(RuntimeError):
    """This process can no longer use its GPU, for whatever trial; another process can go on from the last checkpoint.

    Under MPS, a fault in one process hits all: it is enough that one was killed while its kernels ran.
    """

    def __init__(self, job: "Job", error: Exception) -> None:
        super().__init__(first_line(error))
        self.job = job  # whose training met the error


@dataclass(frozen=True)
class Job:
    """A trial as it is sent to a worker."""

    trial: Trial  # what to train
    folder: str  # its folder; where that is in a store, the driver's copy
    objective: str  # metric that is shown while it runs
    n_threads: int = 1  # for torch
    device: str = "cpu"  # cpu or cuda
    store: str = ""  # address of the folder in a store; nothing where `folder` is shared
    stop: str = ""  # file that its driver makes to have it stopped at the next pause; only nodes that share it see it

    @classmethod
    def for_trial(cls, trial: Trial, study: StudyFolder, objective: str, resources: Resources) -> "Job":
        """Return the job of a study's trial; makes the study's folder."""
        study.path.mkdir(parents=True, exist_ok=True)
        folder = study.trial(trial.key)
        n_threads, device = max(1, int(resources.cpus)), "cuda" if resources.gpus else "cpu"
        return cls(trial, str(folder.path.absolute()), objective, n_threads, device, folder.mirror.uri)

    def as_config(self) -> dict[str, Any]:
        """Return what `of` reads."""
        return asdict(self)

    @classmethod
    def of(cls, config: dict[str, Any]) -> "Job":
        """Read what `as_config` returned."""
        return cls(**{**config, "trial": Trial.of(config["trial"])})

    @contextmanager
    def opened(self) -> Iterator[TrialFolder]:
        """Yield the trial's folder for a worker; an OSError says that this node or the store does not have it."""
        path = Path(self.folder)
        if not self.store:
            if not path.parents[1].is_dir():  # made by the driver; a node that has come since may not share it
                raise FileNotFoundError(f"{platform.node()} does not have {path.parents[1]}, which must be shared")
            yield TrialFolder(path)
            return
        own = copy_of(self.store) / f"{os.getpid()}-{path.name}"
        copy = own.joinpath(*path.parts[-3:])
        try:
            yield TrialFolder(copy, mirror_of(copy, self.store))
        finally:
            shutil.rmtree(own, ignore_errors=True)
            with suppress(OSError):  # a worker that has lost the trial may still have files there
                own.parent.rmdir()


def folder_of(job: Mapping[str, Any]) -> TrialFolder:
    """Return the trial's folder for the driver, from what `Job.as_config` returned."""
    path = Path(job["folder"])
    return TrialFolder(path, mirror_of(path, job.get("store", "")))


class Reporter(Protocol):
    """The receiver of a worker's events; a call may end the worker."""

    @property
    def node(self) -> str:
        """Return Ray's identifier of the node that the worker is on; empty without Ray."""

    def reported(self, job: Job, batch: int, n_batches: int, objective: float) -> None:
        """Pass on that a report was published."""

    def noted(self, job: Job, text: str) -> None:
        """Pass on what happened to a file that cannot be used."""

    def ended(self, job: Job) -> None:
        """Pass on that a trial has a result."""

    def unwritable(self, cause: str) -> None:
        """Pass on that a trial's files cannot be written: it can continue later, but the study should end."""

    def gauges(self, **labels: str) -> Gauges:
        """Return the gauges that publish a trial's progress."""


def run_job(job: Job, reporter: Reporter) -> Generator[Report | None, None, None]:
    """Run a trial from its beginning, or its last checkpoint, to its end.

    It pauses at `Run.moments` and yields what they yield. Closed at a pause, or after `GpuLost`, it leaves a trial that
    can be resumed.
    """
    torch.set_num_threads(job.n_threads)  # a reused worker may have had another number
    try:
        with job.opened() as folder:
            token = folder.take(job.trial)
            for sentence in folder.repair():
                reporter.noted(job, sentence)
            folder.begin(job.trial)
            if folder.result() is not None:
                return  # ended side by side with others, before their worker died
            started = time.perf_counter()
            result = yield from _trained(job, folder, token, reporter)
            if result.status is Status.FINISHED and not folder.is_whole():
                # Its reports were lost: it has to train again to have them.
                folder.reopen()
                token = folder.take(job.trial)
                result = yield from _trained(job, folder, token, reporter)
            folder.end(replace(result, wall_s=time.perf_counter() - started, node=reporter.node), token)
            reporter.ended(job)
    except Lost:
        return  # another worker goes on with it
    except OSError as error:
        reporter.unwritable(str(error))


def _trained(job: Job, folder: TrialFolder, token: str, reporter: Reporter) -> Generator[Report | None, None, Result]:
    """Train to the end; failures of the training become a result, so that the study goes on."""
    hardware = ""
    for chunk_size in (DEFAULT_CHUNK_SIZE, _SMALL_CHUNK_SIZE):
        try:
            hardware = hardware_name(job.device)
            yield from _train(job, folder, token, reporter, chunk_size)
        except (Lost, Unwritable):
            raise  # not a failure of the training
        except Diverged as error:
            return Result(Status.FAILED, Failure(FailureKind.DIVERGED, first_line(error)), "", now_ms(), hardware)
        except Exception as error:
            if is_gpu_lost(job.device):
                raise GpuLost(job, error) from error
            failure = Failure(FailureKind.ERROR, f"{type(error).__name__}: {first_line(error)}")
            told = traceback.format_exc()
            if not _is_out_of_memory(error):
                break
            failure = Failure(FailureKind.OUT_OF_MEMORY, first_line(error))
            if job.device == "cuda":
                torch.cuda.empty_cache()
        else:
            return Result(Status.FINISHED, hardware=hardware)
    return Result(Status.FAILED, failure, told, now_ms(), hardware)


def _is_out_of_memory(error: Exception) -> bool:
    """Return whether memory ran out; on a CPU, torch has no exception class for it."""
    is_cpu_allocator = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return is_cpu_allocator or isinstance(error, torch.OutOfMemoryError | MemoryError)


def is_gpu_lost(device: str) -> bool:
    """Return whether the GPU refuses the simplest operation: after an illegal access it does until the process ends."""
    if device != "cuda":
        return False
    try:
        torch.ones(1, device=device).item()
    except torch.OutOfMemoryError:
        return False
    except RuntimeError:
        return True
    return False


def _train(job: Job, folder: TrialFolder, token: str, reporter: Reporter, chunk_size: int) -> Iterator[Report | None]:
    run = _run_of(job, folder, reporter, chunk_size)
    saving = Saving(run, folder.checkpoint, folder.path / PREVIOUS, lambda: folder.mirror.push(CHECKPOINT))
    study, loss = folder.path.parents[1].name, short(str(job.trial.config["loss_name"]))
    with reporter.gauges(study=study, stage=job.trial.stage, loss=loss, metric=job.objective) as gauges:
        for report in run.moments():
            if report is None:
                yield None
                continue
            with _writing():
                row = Row(report.batch, report.n_batches, now_ms(), report.seconds, report.by_seed, report.failures)
                folder.publish(row, token)
                saving.save()
            metrics = report.metrics
            shown = metrics.get(job.objective, math.nan)
            gauges.set(OBJECTIVE, shown)
            gauges.set(KAPPA_MEAN, metrics.get(f"{run.step.task.split}/kappa_mean", math.nan))
            gauges.set(MS_PER_BATCH, metrics[names.MS_PER_BATCH])
            gauges.set(SHARE_DONE, report.batch / report.n_batches)
            gauges.set(GPU_MEMORY, torch.cuda.memory_reserved() if job.device == "cuda" else 0)
            reporter.reported(job, report.batch, report.n_batches, shown)
            yield report


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except (Lost, torch.AcceleratorError):
        raise
    except (OSError, RuntimeError) as error:  # for torch, a full disk is a RuntimeError
        raise Unwritable(first_line(error)) from None


def _run_of(job: Job, folder: TrialFolder, reporter: Reporter, chunk_size: int) -> Run:
    """Return the training, from its last checkpoint that can be used or from the start.

    A checkpoint that cannot be read, is damaged or is of another configuration is set aside, and the reporter told.
    """
    is_fast = chunk_size == DEFAULT_CHUNK_SIZE  # the fused kernels have no chunks
    trust(job.trial.config)  # the study's driver has sent it
    config, seeds = job.trial.run_config, job.trial.seeds
    for name in (CHECKPOINT, PREVIOUS):
        path = folder.path / name
        if not path.exists():
            continue
        try:
            content = read_checkpoint(path)
            check_same_config(path, content, config, seeds)
        except ValueError as error:
            with _writing():
                kept = folder.set_aside(name)
            reporter.noted(job, f"{first_line(error)} It is now {kept}, and the trial goes on without it.")
            continue
        return Run.resumed(content, job.device, is_fast, chunk_size)
    return Run(config, seeds, job.device, is_fast, chunk_size)


def hardware_name(device: str) -> str:
    """Return the name of the GPU or processor, for a trial's record."""
    return torch.cuda.get_device_name() if device == "cuda" else f"CPU {platform.machine()}"
