"""Invariants of a trial's folder: files that can be read, reports in order and complete, checkpoints that match."""

from collections.abc import Iterator
from itertools import pairwise

from pcl.config.user_files import portable
from pcl.storage.mirror import Mirrored
from pcl.studies.ledger.folders import (
    CHECKPOINT,
    PREVIOUS,
    REPORTS,
    RESULT,
    TRIAL,
    Damaged,
    Result,
    Row,
    Status,
    StudyFolder,
    TrialFolder,
)
from pcl.studies.space.trial import Trial
from pcl.studies.verification.problem import Problem, Remedy
from pcl.training.checkpoint import read_checkpoint


def trial_problems(folder: TrialFolder) -> list[Problem]:
    """Return what is wrong with a trial's folder; a trial that has not begun or not ended is no problem."""
    return list(_problems(folder))


def unfinished_problems(folder: StudyFolder | TrialFolder) -> Iterator[Problem]:
    """Yield the files of a folder that were never finished."""
    for left in folder.unfinished():
        yield Problem(str(left), "was being written when its process was killed", Remedy.RESUME)


def _problems(folder: TrialFolder) -> Iterator[Problem]:
    yield from unfinished_problems(folder)
    try:
        trial, rows, result = folder.trial(), folder.rows(), folder.result()
    except FileNotFoundError:
        if any((folder.path / name).exists() for name in (REPORTS, RESULT)):
            yield Problem(str(folder.path), f"has no {TRIAL}", Remedy.RESUME)
        return  # a worker was killed before the trial began
    except Damaged as error:
        yield Problem(str(error).removesuffix(" cannot be read"), "cannot be read", Remedy.RESUME)
        return
    if trial.key != folder.key:
        if not trial.is_of_older_numerics(folder.key):
            yield Problem(str(folder.path / TRIAL), "was edited: it is not the trial of this folder", Remedy.DELETE)
        return
    if result is None and (folder.path / RESULT).exists():
        yield Problem(str(folder.path), "is to run again, but its old files are still there", Remedy.RESUME)
        return
    yield from _report_problems(folder, trial, rows)
    if result is not None and result.status is Status.FINISHED and not folder.is_whole():
        yield Problem(str(folder.path), "has finished, but has no report of its last batch", Remedy.RESUME)
        return
    if result is not None and (folder.path / PREVIOUS).exists():
        yield Problem(str(folder.path / PREVIOUS), "is left over from a trial that has ended", Remedy.DELETE)
    yield from _checkpoint_problems(folder, trial, rows, result)


def _report_problems(folder: TrialFolder, trial: Trial, rows: list[Row]) -> Iterator[Problem]:
    """Check that each batch has at most one report, of all seeds, and none after the last batch; a clock may jump."""
    n_batches = trial.config.get("training.n_batches")
    wrong = [
        ("two reports of one batch", any(a.batch == b.batch for a, b in pairwise(rows))),
        ("a report with another number of batches", any(row.n_batches != n_batches for row in rows)),
        ("a report after the last batch", any(row.batch > row.n_batches for row in rows)),
        ("a report without one of its seeds", any(set(row.by_seed) != set(trial.seeds) for row in rows)),
        (
            "seeds with different metrics",
            any(len(set(map(frozenset, r.by_seed.values()))) > 1 for r in rows),
        ),
        ("a report that lacks metrics of an earlier one", any(not _names(a) <= _names(b) for a, b in pairwise(rows))),
    ]
    for what, is_wrong in wrong:
        if is_wrong:
            yield Problem(str(folder.path / REPORTS), f"has {what}", Remedy.RETRAIN)


def _names(row: Row) -> set[str]:
    return {name for metrics in row.by_seed.values() for name in metrics}


def _checkpoint_problems(
    folder: TrialFolder, trial: Trial, rows: list[Row], result: Result | None
) -> Iterator[Problem]:
    """Check that the checkpoint is whole, of this trial and not ahead of the reports; a finished trial has its last."""
    is_finished = result is not None and result.status is Status.FINISHED and not result.reused_from
    if isinstance(folder.mirror, Mirrored):  # checkpoints are not downloaded
        if is_finished and not folder.mirror.time_of(CHECKPOINT):
            yield Problem(f"{folder.mirror.uri}/{CHECKPOINT}", "is missing: its encoder is lost", Remedy.RETRAIN)
        return
    if not folder.checkpoint.exists():
        if is_finished:
            yield Problem(str(folder.checkpoint), "is missing: its encoder is lost", Remedy.RETRAIN)
        return
    try:
        content = read_checkpoint(folder.checkpoint)
    except ValueError:
        yield Problem(str(folder.checkpoint), "is damaged", Remedy.RESUME if result is None else Remedy.RETRAIN)
        return
    # Compare the stored configurations: a user's own parts are code, which does not run here.
    theirs, ours = portable(content["config"]), portable(trial.config)
    if tuple(content["seeds"]) != trial.seeds or any(theirs.get(path, value) != value for path, value in ours.items()):
        yield Problem(
            str(folder.checkpoint), "is of another trial", Remedy.RESUME if result is None else Remedy.RETRAIN
        )
        return
    if is_finished and content["batch"] != rows[-1].batch:
        yield Problem(str(folder.checkpoint), "is not of the last batch", Remedy.RETRAIN)
    if content["batch"] and content["batch"] not in {row.batch for row in rows}:
        yield Problem(str(folder.path / REPORTS), "lacks the report of its checkpoint's batch", Remedy.RETRAIN)
