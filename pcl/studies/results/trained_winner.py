"""The training of a study's winner that is registered as a model, applied to images and looked at."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pcl.storage.files import Damaged
from pcl.studies.ledger.folders import CHECKPOINT, Status, StudyFolder, TrialFolder
from pcl.studies.ledger.study_storage import storage_of
from pcl.studies.space.trial import REPORT_STAGE


class TrainedWinner(NamedTuple):
    """A training of a winner, and its checkpoint, which need not exist."""

    folder: TrialFolder
    checkpoint: Path


def trained_winner(study: StudyFolder, key: str) -> TrainedWinner:
    """Return the training of the winner with this key: the first finished one on report seeds, else its own.

    Report seeds never select, so their results are not flattered by the selection. A training whose checkpoint is in
    another storage does not count.
    """
    winner = study.trial(key)
    if winner.path.exists():
        cell = winner.trial().cell
        for folder in _reported(study, cell):
            if (checkpoint := checkpoint_of(study, folder)).exists():
                return TrainedWinner(folder, checkpoint)
    return TrainedWinner(winner, checkpoint_of(study, winner))


def _reported(study: StudyFolder, cell: str) -> Iterator[TrialFolder]:
    for folder in study.trials():
        with suppress(Damaged):  # another trial's file; `launch/verify.py` names it
            trial, result = folder.trial(), folder.result()
            is_finished = result is not None and result.status is Status.FINISHED
            if trial.stage == REPORT_STAGE and trial.cell == cell and is_finished:
                yield folder


def checkpoint_of(study: StudyFolder, trial: TrialFolder) -> Path:
    """Return a trial's checkpoint, which need not exist; a reused trial's is in the study that trained it."""
    result = trial.result()
    named = result.reused_from if result is not None else None
    places = [trial, *([study.beside(named).trial(trial.key)] if named else [])]
    for place in places:
        place.mirror.pull(CHECKPOINT)
        if place.checkpoint.exists():
            return place.checkpoint
    return storage_of(study).checkpoint_of(trial.key) or trial.checkpoint
