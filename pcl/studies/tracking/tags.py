"""Tags and states of MLflow runs: every name that we write or read, and readers of their values.

Imports neither MLflow nor torch, for the board and other readers of records.
"""

import json
from collections.abc import Mapping
from enum import StrEnum

from pcl.config.failure import Failure, FailureKind, failure_of_old_sentence
from pcl.studies.space.numerics_version import MATHS_VERSION

__all__ = [
    "EXPERIMENTS", "NUMERICS", "Failure", "FailureKind", "RunKind", "RunState", "Tag", "failure_of", "is_current",
    "numerics_of", "shown_commit", "varied_of",
]  # fmt: skip

EXPERIMENTS = "pcl/"  # prefix of the experiments that studies are in


class Tag:
    """Names of tags."""

    # Of every run
    KIND = "pcl.kind"  # of `RunKind`
    STUDY = "pcl.study"
    SPACE = "pcl.space"
    SCALE = "pcl.scale"
    FIDELITY = "pcl.fidelity"
    OBJECTIVE = "pcl.objective"
    DATA = "pcl.data"
    COMMIT = "pcl.commit"  # with "+" where files had changed
    SOURCE = "pcl.source"  # hash of the package's files
    LOCK = "pcl.lock"
    HARDWARE = "pcl.hardware"
    TORCH = "pcl.torch"
    # Of a study that has a winner
    WINNER = "pcl.winner"  # the winner's run
    PARAMS_OF = "pcl.params_of"  # the run whose params the study's run has: params cannot change
    # Of a study whose winner is registered as a model
    MODEL = "pcl.model"  # NAME/VERSION in the registry
    MODEL_TRIAL = "pcl.model_trial"  # key of the trial that had won by then
    # Of a model and its versions, besides those of a trial
    DIGEST = "pcl.digest"  # of all that makes the model: versions of equal digests are equal
    # Of the runs of an ablation
    ABLATION = "pcl.ablation"
    BASELINE = "pcl.baseline"  # key of the trial that others are paired with
    # Of a trial and its seeds
    TRIAL = "pcl.trial"
    CELL = "pcl.cell"
    SEED = "pcl.seed"  # of a trial, where it has but one
    STAGE = "pcl.stage"
    MATHS = "pcl.maths"
    VARIED = "pcl.varied"  # JSON: values by axis
    # Of those that have ended
    REUSED_FROM = "pcl.reused_from"  # study that had trained the trial before
    CAUSE = "pcl.cause"  # for people; programs read the two below
    FAILURE_KIND = "pcl.failure_kind"
    FAILURE_DETAIL = "pcl.failure_detail"
    STOPPED_EARLY = "pcl.stopped_early"
    SYNCED = "pcl.synced"  # result that the run is synced with
    # MLflow's own
    PARENT = "mlflow.parentRunId"
    USER = "mlflow.user"
    DESCRIPTION = "mlflow.note.content"  # Markdown, shown on a run's page
    SOURCE_COMMIT = "mlflow.source.git.commit"


class RunKind(StrEnum):
    """The kind of a run."""

    STUDY = "study"
    TRIAL = "trial"
    SEED = "seed"


class RunState(StrEnum):
    """MLflow's status of a run."""

    RUNNING = "RUNNING"
    SCHEDULED = "SCHEDULED"
    FINISHED = "FINISHED"
    FAILED = "FAILED"
    KILLED = "KILLED"


NUMERICS = str(MATHS_VERSION)  # of runs that are recorded now
_UNTAGGED_MATHS = "3"  # of runs that were recorded before they were tagged


def is_current(tags: Mapping[str, str]) -> bool:
    """Return whether a run's configuration would give the same numbers today.

    Example:
        >>> is_current({"pcl.maths": str(MATHS_VERSION)}), is_current({"pcl.maths": "2"})
        (True, False)
    """
    return numerics_of(tags) == NUMERICS


def numerics_of(tags: Mapping[str, str]) -> str:
    """Return the numerics version of a run."""
    return tags.get(Tag.MATHS, _UNTAGGED_MATHS)


def shown_commit(commit: str, n_digits: int = 10) -> str:
    """Return the first digits of a commit, with "+" where files had changed since.

    Example:
        >>> shown_commit("14cf3064bb761f1e4a1e7a00258ba31ac9910233+")
        '14cf3064bb+'
    """
    return commit[:n_digits].rstrip("+") + "+" * commit.endswith("+")


def failure_of(tags: Mapping[str, str]) -> Failure | None:
    """Return why a run failed; of a trial with a single seed, why that seed did.

    Example:
        >>> str(failure_of({"pcl.failure_kind": "runaway_kappa", "pcl.failure_detail": "its median is 2e+07"}))
        'runaway kappa: its median is 2e+07'
    """
    if Tag.FAILURE_KIND in tags:
        return Failure(FailureKind(tags[Tag.FAILURE_KIND]), tags.get(Tag.FAILURE_DETAIL, ""))
    sentence = tags.get(Tag.CAUSE, "")
    return failure_of_old_sentence(sentence, tags.get(Tag.SEED, "")) if sentence else None


def varied_of(tags: Mapping[str, str]) -> dict[str, str | int | float | bool] | None:
    """Return what a trial varied, by axis; None for runs that do not record it."""
    return json.loads(tags[Tag.VARIED]) if Tag.VARIED in tags else None
