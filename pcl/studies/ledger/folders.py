"""A study's files: a folder per trial that survives the death of drivers, workers and tracking servers.

    STORAGE/STUDY/study.json               the study's specification; see `pcl.studies.ledger.study_spec`
    STORAGE/STUDY/trials/KEY/trial.json    the trial: configuration, seeds, stage
                            /reports.json  every report so far, each with the time of its first publication
                            /checkpoint.pt the training's last checkpoint; checkpoint.previous.pt the one before
                            /result.json   how it ended; absent before
                            /owner         who may write; the last one to claim a trial wins

Every file is replaced in one step. Writes and deletions are ordered so that a process that dies between two of them
leaves a trial that has ended, one that goes on, or one that has not begun:

- A trial has ended when it has a result. A finished one also needs a report of its last batch: workers and `repair`,
  which runs at the start of every driver and worker, ensure that.
- A reused trial has only a result, which carries the report.
- A trial that is run again gets the result `reopened` before anything is deleted; that file is deleted last.

MLflow is synced with these folders, repeatedly if need be. For studies in a store such as s3://bucket, these folders
are copies (see `pcl.storage.mirror`), and what is written here is pushed.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from pcl.storage.files import Damaged, is_being_written, set_aside, write_json, write_text
from pcl.storage.mirror import UNMIRRORED, Mirror
from pcl.studies.ledger.records import Metrics, Result, Row, Status, now_ms
from pcl.studies.ledger.typed_json import parsed, record, table
from pcl.studies.space.trial import Trial

__all__ = [
    "CHECKPOINT", "LEASE", "LOCK", "PREVIOUS", "REPORTS", "RESULT", "SCRATCH", "TRIAL", "TRIALS", "Damaged", "Lost",
    "Metrics", "Result", "Row", "Status", "StudyFolder", "TrialFolder", "now_ms",
]  # fmt: skip

T = TypeVar("T")

CHECKPOINT, LEASE, LOCK, SCRATCH, TRIALS = "checkpoint.pt", "lease", ".lock", "ray", "trials"
PREVIOUS = "checkpoint.previous.pt"  # exists only on the machine that wrote it
TRIAL, REPORTS, RESULT, _OWNER = "trial.json", "reports.json", "result.json", "owner"
_REOPENED = "reopened"  # status in place of a result: the trial's progress is being deleted
_OWN = (LEASE, LOCK, SCRATCH)  # a study's files that belong to its driver


class Lost(RuntimeError):
    """Another worker has taken over this trial."""


class _Folder:
    """A folder that is kept in sync with a mirror."""

    def __init__(self, path: Path, mirror: Mirror = UNMIRRORED) -> None:
        self.path, self.mirror = path, mirror

    def unfinished(self) -> list[Path]:
        """Return the files that a killed process left half-written, and those being written now."""
        return sorted(self.path.glob("*.tmp"))


class TrialFolder(_Folder):
    """A trial's files; `begin` creates the folder."""

    @property
    def key(self) -> str:
        return self.path.name

    @property
    def checkpoint(self) -> Path:
        """Return the path of the training's checkpoint, which need not exist yet."""
        return self.path / CHECKPOINT

    def trial(self) -> Trial:
        """Return the trial.

        Raises:
            Damaged: If the file cannot be read; so do `rows` and `result`.
        """
        return self._parsed(TRIAL, lambda content: record(Trial, content))

    def rows(self) -> list[Row]:
        """Return the reports published so far, in the order of their batches."""
        result = self.result()
        if result is not None and result.row is not None:
            return [result.row]
        if self._is_reopened():
            return []
        try:
            return self._parsed(REPORTS, _rows_of)
        except FileNotFoundError:
            return []

    def result(self) -> Result | None:
        """Return how the trial ended, if it has."""
        try:
            return self._parsed(RESULT, lambda content: None if _is_mark(content) else Result.of(content))
        except FileNotFoundError:
            return None

    def begin(self, trial: Trial) -> None:
        """Create the folder, unless it exists."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.path / TRIAL).exists():
            self._write(TRIAL, asdict(trial))

    def pull(self) -> None:
        """Download what a worker elsewhere has written, except checkpoints."""
        self.mirror.pull(TRIAL, REPORTS, RESULT)

    def take(self, trial: Trial) -> str:
        """Begin or resume a trial as its only worker; return the token that every write needs.

        Existing files may need `repair`.
        """
        self.begin(trial)
        token = self.claim()
        self.mirror.pull_all()  # after the claim: the previous worker no longer writes
        return token

    def claim(self) -> str:
        """Become the only writer; return the token that every write needs."""
        self._clear()
        token = uuid.uuid4().hex
        write_text(self.path / _OWNER, token)
        self.mirror.push(_OWNER)
        return token

    def publish(self, row: Row, token: str) -> None:
        """Add a report. The first at a batch stays: a training resumed from a checkpoint repeats the later ones.

        Raises:
            Lost: If another has claimed the trial since.
        """
        self.check_owner(token)
        rows = self.rows()
        if all(row.batch != other.batch for other in rows):
            self._write(REPORTS, [r.as_json() for r in sorted([*rows, row], key=lambda r: r.batch)])

    def end(self, result: Result, token: str) -> None:
        """Record how the trial ended."""
        self.check_owner(token)
        self.close(result)

    def close(self, result: Result) -> None:
        """Record how the trial ended, without a token: for the driver, where the trial has no worker."""
        (self.path / PREVIOUS).unlink(missing_ok=True)
        self._write(RESULT, result.as_json())

    def reopen(self) -> None:
        """Delete the result and all progress, so that the trial runs again from the start."""
        if self.path.exists():
            self.claim()  # a late worker can no longer write
            self._mark_reopened()
            self._forget()

    def is_whole(self) -> bool:
        """Return whether there is a report of the last batch, which a finished trial needs."""
        rows = self.rows()
        return bool(rows) and rows[-1].batch == rows[-1].n_batches

    def repair(self) -> list[str]:
        """Set aside files that cannot be read, and reopen the trial where it has lost reports.

        Returns:
            A sentence for each problem.
        """
        told = []
        self._clear()
        for name, read in ((TRIAL, self.trial), (RESULT, self.result), (REPORTS, self.rows)):
            with suppress(FileNotFoundError):
                try:
                    read()
                except Damaged as error:
                    if name == REPORTS:
                        self._mark_reopened()  # first: without reports, its checkpoint is of no use
                    told.append(f"{error}; it was set aside as {self.set_aside(name)}")
        if self._is_reopened():
            self._forget()
        result = self.result()
        if result is not None and result.status is Status.FINISHED and not self.is_whole():
            told.append(f"{self.path} is of a finished trial without a report of its last batch; it runs again")
            self._mark_reopened()
            self._forget()
        return told

    def check_owner(self, token: str) -> None:
        """Raise `Lost` if another has claimed the trial since."""
        self.mirror.pull(_OWNER)
        try:
            owner = (self.path / _OWNER).read_text()
        except FileNotFoundError:
            owner = ""
        if owner != token:
            raise Lost(f"Trial {self.key} has been taken over by another worker.")

    def set_aside(self, name: str) -> str:
        """Rename a file that cannot be used, and return its new name; in a store, records are kept under it too."""
        kept = set_aside(self.path / name, "damaged")
        if name not in (CHECKPOINT, PREVIOUS):  # large, and of no use to anyone
            self.mirror.push(kept.name)
        self.mirror.delete(name)
        return kept.name

    def _clear(self) -> None:
        """Delete the half-written files of a killed process."""
        for left in self.unfinished():
            left.unlink(missing_ok=True)

    def _mark_reopened(self) -> None:
        """Declare, in one step, that the trial's progress no longer counts."""
        self._write(RESULT, {"status": _REOPENED})

    def _forget(self) -> None:
        """Delete a reopened trial's progress; the file that says it is reopened goes last."""
        for name in (PREVIOUS, CHECKPOINT, REPORTS, RESULT):
            self.mirror.delete(name)
            (self.path / name).unlink(missing_ok=True)

    def _is_reopened(self) -> bool:
        """Return whether the trial's progress no longer counts, and is to be deleted."""
        try:
            return self._parsed(RESULT, _is_mark)
        except FileNotFoundError:
            return False

    def _parsed(self, name: str, parse: Callable[[Any], T]) -> T:
        try:
            return parsed(self.path / name, parse)
        except ValueError as error:
            raise Damaged(str(error)) from error.__cause__

    def _write(self, name: str, content: Any) -> None:
        write_json(self.path / name, content)
        self.mirror.push(name)


def _rows_of(content: Any) -> list[Row]:
    if not isinstance(content, list):
        raise TypeError(f"reports must be a list, but got {type(content).__name__}")
    return sorted(map(Row.of, content), key=lambda row: row.batch)


def _is_mark(content: Any) -> bool:
    """Return whether the content of result.json is not a result, but says that the trial runs again."""
    return table(content).get("status") == _REOPENED


class StudyFolder(_Folder):
    """A study's files, in STORAGE/STUDY."""

    @property
    def name(self) -> str:
        return self.path.name

    def beside(self, name: str) -> "StudyFolder":
        """Return another study in the same storage."""
        return StudyFolder(self.path.parent / name, self.mirror.beside(name))

    def has_begun(self) -> bool:
        """Return whether there is a study, here or in its store."""
        self.mirror.pull("study.json")
        return (self.path / "study.json").exists()

    def pull(self) -> None:
        """Download what others have written, except checkpoints."""
        self.mirror.pull_all(left_out=(*_OWN, CHECKPOINT))

    def push(self) -> None:
        """Upload the study's own files, outside its trials' folders."""
        self.mirror.push_all(left_out=(*_OWN, TRIALS))

    def trial(self, key: str) -> TrialFolder:
        """Return the folder of a trial, which need not exist yet."""
        return TrialFolder(self.path / TRIALS / key, self.mirror.inside(f"{TRIALS}/{key}"))

    def repair(self) -> list[str]:
        """Repair the study's folder and those of all trials; return a sentence for each problem."""
        for left in self.unfinished():
            if not is_being_written(left):  # readers of a store copy its files here, without the study's lock
                left.unlink(missing_ok=True)
        folders = (self.trial(path.name) for path in sorted((self.path / TRIALS).glob("*/")) if path.is_dir())
        return [sentence for folder in folders for sentence in folder.repair()]

    def trials(self) -> Iterator[TrialFolder]:
        """Yield every trial that has begun."""
        for path in sorted((self.path / TRIALS).glob("*/trial.json")):
            yield self.trial(path.parent.name)
