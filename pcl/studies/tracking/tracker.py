"""Syncs MLflow with a study's folders; the only writer of MLflow.

    experiment pcl/SPACE
      parent   pcl.kind=study, pcl.study=NAME
        child    pcl.kind=trial, pcl.trial=KEY, pcl.cell=CELL (the key of all trials that differ in their seeds alone):
                 parameters, means over seeds, `objective` and `objective_se`
          grandchild  pcl.kind=seed, pcl.seed=SEED: where a trial has several seeds, each one's metrics

The folders are the source of truth and the journal (see `pcl.studies.ledger.folders`). `Tracker.sync` is idempotent:
there is one run for each trial, and every report is in it once. MLflow keeps NaN; it stores an infinity as the largest
float, which `Tracker.finished` converts back.
"""

import getpass
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pcl.storage.read_write_lock import ReadWriteLock
from pcl.studies.ledger.folders import Metrics, Row, TrialFolder, now_ms
from pcl.studies.space.numerics_version import MATHS_VERSION
from pcl.studies.space.trial import Trial
from pcl.studies.tracking import run_content as content
from pcl.studies.tracking.finished_trials import Found, ended_trials
from pcl.studies.tracking.page_links import trials_page
from pcl.studies.tracking.run_content import Ending, StudyTags
from pcl.studies.tracking.store import LONGEST_TAG, Store, StoreError
from pcl.studies.tracking.tags import EXPERIMENTS, RunKind, RunState, Tag

if TYPE_CHECKING:
    from mlflow.entities import Run

__all__ = ["End", "Found", "StoreError", "StudyTags", "Tracker"]

End = RunState  # how a study ends, for callers of `close_study`


@dataclass(frozen=True)
class _Identity:
    kind: str
    trial: str = ""
    seed: str = ""  # of a run of kind seed


@dataclass
class _Record:
    """A run as this process knows it."""

    run_id: str
    state: RunState = RunState.RUNNING
    tags: dict[str, str] = field(default_factory=dict)
    params: set[str] = field(default_factory=set)  # names of those already written
    sent: set[tuple[int, int]] = field(default_factory=set)  # time and batch of the reports that this process has sent
    witness: str = ""  # a metric that shows what another process has sent

    @classmethod
    def of(cls, run: "Run") -> "_Record":
        witness, info, data = next(iter(content.reported(run.data.metrics)), ""), run.info, run.data
        return cls(info.run_id, RunState(info.status), dict(data.tags), set(data.params), witness=witness)

    def is_in_line(self, state: RunState, stamp: str) -> bool:
        return self.state is state and self.tags.get(Tag.SYNCED) == stamp


_PARENT = _Identity(RunKind.STUDY)
_OF_ANOTHER = "The parameters here are those of an earlier winner, which MLflow keeps; this one's are in its run."


@dataclass
class _Study:
    name: str
    tags: StudyTags
    experiment: str = ""
    records: dict[_Identity, _Record] = field(default_factory=dict)
    is_loaded: bool = False

    @property
    def run_id(self) -> str:
        return self.records[_PARENT].run_id


class Tracker:
    """Writes one study at a time to a `Store`. Its methods may be called from several threads."""

    def __init__(self, uri: str, artifacts: Path | None = None) -> None:
        self.store = Store(uri, artifacts)
        self._lock = ReadWriteLock()
        self._opened: _Study | None = None

    @property
    def shown_uri(self) -> str:
        """Return the address without user and password."""
        return self.store.shown_uri

    @property
    def trials_page(self) -> str:
        """Return the address of MLflow's page of the trials; see `pcl.studies.tracking.page_links`."""
        study = self._study()
        return trials_page(study.experiment, study.name, study.tags.objective)

    def check(self) -> None:
        """Raise a ValueError with one sentence unless the store can be used. Creates nothing."""
        self.store.check()

    def open_study(self, name: str, tags: StudyTags) -> str:
        """Find or create the study's parent run, and return its identifier."""
        if "'" in name + tags.space:
            raise ValueError(f"A study's and a space's name must have no apostrophe, but got {name!r}, {tags.space!r}.")
        with self._lock.writing():
            study = self._opened = _Study(name, tags)
            self._load(study)
            parent = study.records[_PARENT]
            self.store.log(study.run_id, tags=tags.as_tags())
            with suppress(StoreError):  # nothing depends on it
                self.store.log_input(study.run_id, content.training_data(tags.data))
            if parent.state is not RunState.RUNNING:
                self.store.set_running(study.run_id)
                parent.state = RunState.RUNNING
            return study.run_id

    def sync(self, folder: TrialFolder) -> None:
        """Sync a trial's run with its folder; threads may sync several trials, but not the same one.

        Call it again after a `StoreError`, which says that MLflow does not answer.
        """
        study = self._study()
        try:
            if not study.is_loaded:
                with self._lock.writing():  # else runs that others make meanwhile would not be seen, and made twice
                    if not study.is_loaded:
                        self._load(study)
            with self._lock.reading():
                self._sync(study, folder)
        except BaseException:
            study.is_loaded = False  # the request may have succeeded nevertheless
            raise

    def run_id(self, folder: TrialFolder) -> str:
        """Return the trial's run, which `sync` has made."""
        return self._study().records[_Identity(RunKind.TRIAL, folder.key)].run_id

    def log_artifact(self, owner: TrialFolder | str, path: Path) -> None:
        """Copy a file or folder into the artifacts of a trial, or of a run such as the parent."""
        self.store.artifact(self.run_id(owner) if isinstance(owner, TrialFolder) else owner, path)

    def summarize(self, winner: content.Winner) -> None:
        """Write a study's result to its parent run: the winner's settings, metrics and run, and a description.

        MLflow's params cannot change: where a resumed study finds another winner, the description says whose they are.
        """
        study, time_ms = self._study(), now_ms()
        parent, run = study.records[_PARENT], study.records[_Identity(RunKind.TRIAL, winner.trial.key)]
        params = {} if parent.params else content.params_of(winner.trial, winner.trial.seeds)
        points = [(key, value, time_ms, 0) for key, value in winner.metrics.items() if math.isfinite(value)]
        owner = run.run_id if params else parent.tags.get(Tag.PARAMS_OF, "")
        told = winner.description if owner == run.run_id else f"{_OF_ANOTHER}\n\n{winner.description}"
        tags = {Tag.WINNER: run.run_id, Tag.PARAMS_OF: owner, Tag.DESCRIPTION: told}
        self.store.log(study.run_id, points, params, tags)
        parent.params |= set(params)
        parent.tags.update(tags)

    def close_study(self, end: End) -> None:
        """End the parent run. Trials that are still open are marked as killed, until `sync` reopens them."""
        with self._lock.writing():
            study = self._study()
            self._load(study)  # also sees what an earlier driver has left
            for identity, record in study.records.items():
                if identity != _PARENT and record.state is RunState.RUNNING:
                    self.store.end(record.run_id, RunState.KILLED, now_ms())
                    record.state = RunState.KILLED
            self.store.end(study.run_id, end, now_ms())
            study.records[_PARENT].state = end

    def finished(self, key: str) -> Found | None:
        """Return the first finished trial with this key, in any study."""
        found = ended_trials(self.store, {Tag.TRIAL: key}, End.FINISHED, most=1)
        return found[0] if found else None

    def last_batch(self, found: Found) -> int:
        """Return the batch of a trial's last report; 0 where it has none."""
        metric = next((name for metrics in found.by_seed.values() for name in metrics), "")
        return max((batch for _, batch in self.store.points(found.run_id, metric)), default=0) if metric else 0

    def _study(self) -> _Study:
        if self._opened is None:
            raise RuntimeError("`open_study` must be called first.")
        return self._opened

    def _load(self, study: _Study) -> None:
        """Load the study's runs from the store; of runs that were created twice, the first stays."""
        study.experiment = self.store.experiment(EXPERIMENTS + study.tags.space)
        known, study.records = study.records, {}
        for run in self.store.find([study.experiment], {Tag.STUDY: study.name}):
            tags = run.data.tags
            kind = tags.get(Tag.KIND, "")
            seed = tags.get(Tag.SEED, "") if kind == RunKind.SEED else ""
            identity = _Identity(kind, tags.get(Tag.TRIAL, ""), seed)
            if identity in study.records:
                self.store.delete(run.info.run_id)
                continue
            record = study.records[identity] = _Record.of(run)
            if identity in known and known[identity].run_id == record.run_id:
                record.sent = known[identity].sent
        if _PARENT not in study.records:
            tags = {**study.tags.as_tags(), Tag.STUDY: study.name, Tag.KIND: RunKind.STUDY, Tag.USER: _user()}
            study.records[_PARENT] = _Record(self.store.create(study.experiment, study.name, tags))
        study.is_loaded = True

    def _sync(self, study: _Study, folder: TrialFolder) -> None:
        result = folder.result()  # read before the reports: if it exists, they are complete
        rows, trial, objective = folder.rows(), folder.trial(), study.tags.objective
        identity = _Identity(RunKind.TRIAL, folder.key)
        record = study.records.get(identity)
        if record and result and record.is_in_line(content.ENDS[result.status], content.stamp_of(result, rows)):
            return
        if record is None or self._is_of_earlier_attempt(record, rows):
            self._retire(study, folder.key)  # also where somebody has deleted the trial's run, but not its seeds'
            record = None
        record = record or self._create(study, trial, identity, study.run_id)
        for seed in trial.seeds if len(trial.seeds) > 1 else ():
            identity = _Identity(RunKind.SEED, folder.key, str(seed))
            of_seed = study.records.get(identity) or self._create(study, trial, identity, record.run_id)
            points = [(row, row.by_seed[seed]) for row in rows if seed in row.by_seed]
            ending = content.seed_ending(seed, result, rows, objective) if result else None
            self._bring(of_seed, content.params_of(trial, (seed,)), points, ending)
        ending = content.trial_ending(trial, result, rows, objective) if result else None
        self._bring(record, content.params_of(trial, trial.seeds), [(row, row.metrics) for row in rows], ending)

    def _is_of_earlier_attempt(self, record: _Record, rows: list[Row]) -> bool:
        """Return whether a run has reports that the folder lacks: the trial has been reopened since."""
        sent = record.sent
        if not sent and record.witness:
            sent = self.store.points(record.run_id, record.witness)
        return not sent <= {(row.time_ms, row.batch) for row in rows}

    def _retire(self, study: _Study, key: str) -> None:
        """Delete a trial's runs: MLflow cannot undo what an earlier attempt has reported."""
        for identity in [identity for identity in list(study.records) if identity.trial == key]:
            self.store.delete(study.records[identity].run_id)
            del study.records[identity]

    def _create(self, study: _Study, trial: Trial, identity: _Identity, parent: str) -> _Record:
        varied = json.dumps(trial.varied)
        tags = {
            **study.tags.as_tags(), Tag.STUDY: study.name, Tag.KIND: identity.kind, Tag.TRIAL: identity.trial,
            Tag.CELL: trial.cell, Tag.MATHS: str(MATHS_VERSION),
            Tag.SEED: identity.seed or (str(trial.seeds[0]) if len(trial.seeds) == 1 else ""),
            Tag.VARIED: varied if len(varied) <= LONGEST_TAG else "",
            Tag.STAGE: trial.stage, Tag.DATA: trial.data, Tag.PARENT: parent, Tag.USER: _user(),
        }  # fmt: skip
        name = f"{trial.label} seed={identity.seed}" if identity.seed else trial.label
        record = study.records[identity] = _Record(self.store.create(study.experiment, name, tags))
        return record

    def _bring(
        self, record: _Record, params: Mapping[str, str], points: list[tuple[Row, Metrics]], ending: Ending | None
    ) -> None:
        """Send what this process has not sent, in one request if it can be, and set the run's status last."""
        run_id = record.run_id
        end = ending or Ending(RunState.RUNNING, 0)
        for key in content.ENDING_TAGS & set(record.tags) - set(end.tags):
            self.store.drop_tag(run_id, key)
            del record.tags[key]
        if ending is None and record.state is not RunState.RUNNING:
            self.store.set_running(run_id)
            record.state = RunState.RUNNING
        for name, text in end.texts.items():
            self.store.text(run_id, name, text)
        new = [(row, metrics) for row, metrics in points if (row.time_ms, row.batch) not in record.sent]
        missing = {key: value for key, value in params.items() if key not in record.params}
        self.store.log(run_id, content.points_of(new) + end.metrics, missing, end.tags)
        record.sent |= {(row.time_ms, row.batch) for row, _ in new}
        record.params |= set(missing)
        record.tags.update(end.tags)
        if ending:
            self.store.end(run_id, end.state, end.time_ms)
            record.state = end.state


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # containers may run as a user without a name
        return ""
