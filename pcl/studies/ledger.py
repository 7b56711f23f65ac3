"""What a study has done, on disk: a folder per trial that survives the death of drivers, workers and tracking servers.

    STORAGE/STUDY/study.json               what the study is; see `pcl.studies.runner`
    STORAGE/STUDY/trials/KEY/trial.json    the trial: configuration, seeds, stage
                            /reports.json  every report so far, each with the time of its first publication
                            /checkpoint.pt the training, to go on from
                            /result.json   how it ended; there is none before
                            /owner         who may write; the last one to claim a trial wins

Every file is replaced in one step. MLflow is brought in line with these folders, again and again if need be. Where
studies are in a store such as s3://bucket, these folders are copies (see `pcl.mirror`): what is written here is pushed.
"""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from pcl.files import write_json, write_text
from pcl.mirror import UNMIRRORED, Mirror
from pcl.studies.trial import Trial

CHECKPOINT, LEASE, LOCK, SCRATCH, TRIALS = "checkpoint.pt", "lease", ".lock", "ray", "trials"
_OWN = (LEASE, LOCK, SCRATCH)  # of a study's files, those that are a driver's own
Metrics = dict[str, float]


def now_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Status(Enum):
    """How a trial ended."""

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"  # early, by a scheduler: what it has reached is not the whole


@dataclass(frozen=True)
class Row:
    """A published report.

    Attributes:
        batch: Batches trained.
        n_batches: Of how many.
        time_ms: When it was first published, in milliseconds since 1970; never changes afterwards.
        seconds: Spent training.
        by_seed: Metrics of every seed.
        failures: Causes of seeds that have ended early.
    """

    batch: int
    n_batches: int
    time_ms: int
    seconds: float
    by_seed: dict[int, Metrics]
    failures: dict[int, str]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Row":
        """From JSON, whose keys are text."""
        by_seed = {int(seed): _from_json(metrics) for seed, metrics in content["by_seed"].items()}
        failures = {int(seed): cause for seed, cause in content["failures"].items()}
        return cls(**{**content, "by_seed": by_seed, "failures": failures})

    @property
    def metrics(self) -> Metrics:
        """The mean over the seeds that have not failed, or over all where all have."""
        chosen = [m for seed, m in self.by_seed.items() if seed not in self.failures] or list(self.by_seed.values())
        return {key: sum(metrics[key] for metrics in chosen) / len(chosen) for key in chosen[0]} if chosen else {}


@dataclass(frozen=True)
class Result:
    """How a trial ended.

    Attributes:
        status: Finished, failed or stopped early.
        cause: One line that says why it has not finished.
        traceback: Where, if an exception was the cause.
        time_ms: When.
        hardware: What it ran on.
        wall_s: What the last worker spent on it, with set-up and evaluations.
        reused_from: Study that had run the same trial before, whose result this is.
        node: Ray's identifier of the node that ended it.
    """

    status: Status
    cause: str = ""
    traceback: str = ""
    time_ms: int = field(default_factory=now_ms)
    hardware: str = ""
    wall_s: float = 0.0
    reused_from: str = ""
    node: str = ""


class Lost(RuntimeError):
    """Another worker has taken over this trial."""


class TrialFolder:
    """A trial's files.

    Args:
        path: The folder; `begin` makes it.
        mirror: What it is kept in line with.
    """

    def __init__(self, path: Path, mirror: Mirror = UNMIRRORED) -> None:
        self.path, self.mirror = path, mirror

    @property
    def key(self) -> str:
        """The trial's key."""
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        """File of the training, which need not exist yet."""
        return self.path / CHECKPOINT

    def trial(self) -> Trial:
        """What the folder is of."""
        return Trial.of(json.loads((self.path / "trial.json").read_text()))

    def rows(self) -> list[Row]:
        """Reports published so far, in order."""
        try:
            return [Row.of(content) for content in json.loads((self.path / "reports.json").read_text())]
        except FileNotFoundError:
            return []

    def result(self) -> Result | None:
        """How the trial ended, if it has."""
        try:
            content = json.loads((self.path / "result.json").read_text())
        except FileNotFoundError:
            return None
        return Result(**{**content, "status": Status(content["status"])})

    def begin(self, trial: Trial) -> None:
        """Make the folder, unless it is there."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / "trial.json").exists():
            self._write("trial.json", asdict(trial))

    def pull(self) -> None:
        """See what a worker elsewhere has written, but for the training itself."""
        self.mirror.pull("trial.json", "reports.json", "result.json")

    def claim(self) -> str:
        """Become the one who may write; the token is to be shown with every write."""
        for left in self.path.glob("*.tmp"):  # by a worker that was killed while it wrote
            left.unlink(missing_ok=True)
        token = uuid.uuid4().hex
        write_text(self.path / "owner", token)
        self.mirror.push("owner")
        return token

    def publish(self, row: Row, token: str) -> None:
        """Add a report. The first one at a batch stays: a training that goes on from a checkpoint repeats the rest.

        Raises:
            Lost: If another has claimed the trial since.
        """
        self.check_owner(token)
        rows = self.rows()
        if all(row.batch != other.batch for other in rows):
            self._write("reports.json", [_row_json(r) for r in [*rows, row]])

    def end(self, result: Result, token: str) -> None:
        """Record how the trial ended.

        Raises:
            Lost: If another has claimed the trial since.
        """
        self.check_owner(token)
        self.close(result)

    def close(self, result: Result) -> None:
        """Record how the trial ended, as the driver may for a trial without a worker."""
        self._write("result.json", {**asdict(result), "status": result.status.value})

    def reopen(self) -> None:
        """Forget that it ended, and with it what it had reached, so that it runs again from the start."""
        for name in ("result.json", "reports.json", CHECKPOINT):
            self.mirror.delete(name)
            (self.path / name).unlink(missing_ok=True)

    def check_owner(self, token: str) -> None:
        """Raise `Lost` if another has claimed the trial since."""
        self.mirror.pull("owner")
        if (self.path / "owner").read_text() != token:
            raise Lost(f"Trial {self.key} has been taken over by another worker.")

    def _write(self, name: str, content: Any) -> None:
        write_json(self.path / name, content)
        self.mirror.push(name)


class StudyFolder:
    """A study's files.

    Args:
        path: STORAGE/STUDY.
        mirror: What it is kept in line with.
    """

    def __init__(self, path: Path, mirror: Mirror = UNMIRRORED) -> None:
        self.path, self.mirror = path, mirror

    @property
    def name(self) -> str:
        """The study's name."""
        return self.path.name

    def beside(self, name: str) -> "StudyFolder":
        """Another study in the same storage."""
        return StudyFolder(self.path.parent / name, self.mirror.beside(name))

    def pull(self) -> None:
        """See what others have written, but for the trainings themselves."""
        self.mirror.pull_all(left_out=(*_OWN, CHECKPOINT))

    def push(self) -> None:
        """Keep what a study leaves beside its trials."""
        self.mirror.push_all(left_out=(*_OWN, TRIALS))

    def trial(self, key: str) -> TrialFolder:
        """The folder of a trial, which need not exist yet."""
        return TrialFolder(self.path / TRIALS / key, self.mirror.inside(f"{TRIALS}/{key}"))

    def trials(self) -> Iterator[TrialFolder]:
        """Every trial that has begun."""
        for path in sorted((self.path / TRIALS).glob("*/trial.json")):
            yield self.trial(path.parent.name)


def _row_json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "by_seed": {seed: _to_json(metrics) for seed, metrics in row.by_seed.items()}}


def _to_json(metrics: Metrics) -> dict[str, float | str]:
    """JSON has no NaN and no infinity: they become text."""
    return {key: value if abs(value) < float("inf") else str(value) for key, value in metrics.items()}


def _from_json(metrics: Mapping[str, float | str]) -> Metrics:
    return {key: float(value) for key, value in metrics.items()}
