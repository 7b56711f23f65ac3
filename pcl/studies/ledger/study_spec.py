"""The specification of a study, kept in its folder; resuming a study with another one is refused.

A study belongs to one driver at a time: the kernel releases the lock when the process that holds it ends. A study
in a store also has a lease (see `pcl.studies.ledger.lease`).
"""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pcl.config.canonical_settings import canonical_settings
from pcl.config.run_config import Plain
from pcl.config.suggestion import require_choice
from pcl.config.user_files import mentioned
from pcl.storage.files import warn, write_json
from pcl.storage.installation import command
from pcl.storage.locks import Timeout, process_lock
from pcl.studies.ledger.folders import LOCK, TRIALS, StudyFolder
from pcl.studies.ledger.lease import leased
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.ledger.typed_json import parsed, record, table
from pcl.studies.space.search_method import RANDOM, Method, draws, random_cells
from pcl.studies.space.search_space import Objective, SearchSpace
from pcl.studies.space.trial import Trial

_FORMAT = 1
SEARCH, ABLATION, REPRODUCTION = "search", "ablation", "reproduction"
_COMMANDS = {SEARCH: ("grid", " --resume"), ABLATION: ("ablate", " --resume"), REPRODUCTION: ("reproduce", "")}
_STUDY, _SPACE, _OBJECTIVE = "study.json", "space.py", "objective.json"
_MENDED = "Put a copy of it back, or start a new study with another `--name`: it reuses finished trials from MLflow."
MADE_IN_PYTHON = "python:"  # prefix of the name of a space or an ablation without a file
_MOST_DRAWS = 1000  # in a row that are impossible or known, before a random search gives up


@dataclass(frozen=True)
class StudySpec:
    """Everything that decides a study's results."""

    space: str  # name, absolute path, or MADE_IN_PYTHON and a name
    fingerprint: str  # of the space's content
    profile: str
    scale: str
    overrides: dict[str, Plain] = field(default_factory=dict)  # settings of all runs, in one spelling
    tuning_seeds: tuple[int, ...] = (1, 2, 3)  # seeds that select
    report_seeds: tuple[int, ...] = (4, 5, 6, 7, 8)  # seeds of the final row
    data: str = "toy"  # fingerprint of the data
    method: Method = field(default_factory=Method)
    objectives: tuple[str, ...] = ()  # metrics; none for the space's own
    replicate: str = ""  # "auto" if the best get more seeds until it is clear which is best; else empty
    kind: str = SEARCH  # search, ablation or reproduction: the command it belongs to

    def __post_init__(self) -> None:
        object.__setattr__(self, "overrides", canonical_settings(self.overrides))
        if shared := sorted(set(self.tuning_seeds) & set(self.report_seeds)):
            raise ValueError(f"Tuning and report seeds must have none in common, but both have {shared}.")
        require_choice("kind", self.kind, list(_COMMANDS))

    @property
    def has_file(self) -> bool:
        """Return whether the space is defined in a user's own file."""
        return "/" in self.space

    def as_json(self) -> dict[str, Any]:
        """Return the content of study.json."""
        return {"format": _FORMAT, **asdict(self)}

    @classmethod
    def read(cls, folder: StudyFolder) -> "StudySpec":
        """Read study.json.

        Raises:
            ValueError: If there is no study in the folder, or it cannot be read.
        """
        path = folder.path / _STUDY
        folder.mirror.pull(_STUDY)
        try:
            spec = parsed(path, _spec_of)
        except FileNotFoundError:
            lost = ""  # there is no folder either
            if (folder.path / TRIALS).exists():
                lost = f"; {path.name} is missing beside its trials. {_MENDED}"
            elif folder.path.is_dir():
                lost = f"; its folder has no {path.name}."
            place = folder.mirror.uri or folder.path.parent
            raise ValueError(f"There is no study {folder.name!r} in {place}{lost or '.'}") from None
        except ValueError:
            raise ValueError(f"{path} is not readable; it was left as it is. {_MENDED}") from None
        if spec is None:
            raise ValueError(f"{path} is not of format {_FORMAT}; it was left as it is. {_MENDED}")
        return spec

    def difference(self, other: "StudySpec") -> str:
        """Return the first difference in words, or ""; the path of a space's file may differ, as in jobs."""
        ours, theirs = ({**asdict(spec), **asdict(spec.method), "method": ""} for spec in (self, other))
        if self.fingerprint == other.fingerprint and Path(self.space).name == Path(other.space).name:
            theirs["space"] = self.space
        for name, value in ours.items():
            if theirs[name] != value:
                what = {"fingerprint": "content of the space", "kind": "search", "n_trials": "trials"}.get(name, name)
                return f"{what}: {_shown(theirs[name])} there, {_shown(value)} here"
        return ""

    def n_trials(self, space: SearchSpace) -> tuple[int, ...]:
        """Return the number of trials of each stage, without a warm start."""
        return self.method.n_trials or space.n_trials

    def trials(self, space: SearchSpace, stage_index: int, winner: Mapping[str, Plain]) -> list[Trial]:
        """Return the trials of a stage of a grid or a random search.

        Raises:
            ValueError: If one is not possible; of a stage with ranges, if none is.
        """
        stage = space.stages[stage_index]
        if self.method.kind != RANDOM:
            points = list(stage.grid())
        elif stage.is_sampled:
            return self._drawn(space, stage_index, winner)
        else:
            points = random_cells(stage, self.method.n_trials[stage_index], self.method.seed)
        return [self.trial_at(space, stage_index, values, winner) for values in points]

    def corners(self, space: SearchSpace) -> list[Trial]:
        """Return trials that stand for the first stage: first and last of a grid, or the ends of ranges.

        Raises:
            ValueError: If one of the grid, or of those by which ranges are checked, is not possible.
        """
        stage = space.stages[0]
        points = list(stage.probes() if stage.is_sampled else stage.grid())
        trials = [self.trial_at(space, 0, values, {}) for values in points]
        return trials[:2] if stage.is_sampled else [trials[0], trials[-1]]

    def trial_at(
        self, space: SearchSpace, stage_index: int, values: Mapping[str, Plain], winner: Mapping[str, Plain]
    ) -> Trial:
        """Return the trial at these values of a stage's axes."""
        cell = space.cell_from(
            stage_index, values, winner, profile=self.profile, scale=self.scale, overrides=self.overrides
        )
        return Trial(cell.config.flat(), self.tuning_seeds, space.stages[stage_index].name, cell.varied, self.data)

    def _drawn(self, space: SearchSpace, stage_index: int, winner: Mapping[str, Plain]) -> list[Trial]:
        """Draw distinct valid points of a stage with ranges, as many as asked for or as there are."""
        found: dict[str, Trial] = {}
        cause, n_misses = "", 0
        for values in draws(space.stages[stage_index], self.method.seed):
            try:
                trial = self.trial_at(space, stage_index, values, winner)
            except ValueError as error:
                cause, n_misses = str(error), n_misses + 1
            else:
                n_misses = n_misses + 1 if trial.key in found else 0
                found[trial.key] = trial
            if len(found) == self.method.n_trials[stage_index] or n_misses == _MOST_DRAWS:
                break
        if not found:
            raise ValueError(cause)
        return list(found.values())


def _spec_of(content: Any) -> StudySpec | None:
    """Return what study.json says, or None where it is of another format."""
    rest = {name: value for name, value in table(content).items() if name != "format"}
    return record(StudySpec, rest) if content.get("format") == _FORMAT else None


def _shown(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else repr(value)


@contextmanager
def opened(
    folder: StudyFolder, spec: StudySpec, on_lost: Callable[[], None] = lambda: None, *, is_resumed: bool = True
) -> Iterator[None]:
    """Hold the study's lock; write study.json, or check that it has the same specification.

    `on_lost` is called, in a thread of its own, if another process has taken over a study in a store. `is_resumed`
    makes it the study that was worked on last. A ValueError says that the folder has another study, or that a process
    is at work on it.
    """
    folder.mirror.pull(_STUDY)
    _require_same(folder, spec)  # before anything is made or waited for
    try:
        lock = process_lock(folder.path / LOCK).acquire(blocking=False)
    except Timeout:
        raise ValueError(f"Another process is at work on the study {folder.name!r}; wait for it.") from None
    with lock:
        if is_resumed:
            os.utime(folder.path / LOCK)
        with leased(folder, on_lost):
            folder.pull()
            _require_same(folder, spec)  # again: another driver may have begun one meanwhile, and ended
            if not (folder.path / _STUDY).exists():
                _keep_space(folder, spec)
                write_json(folder.path / _STUDY, spec.as_json())
                folder.mirror.push(_STUDY)
            for sentence in folder.repair():
                warn(sentence)
            yield


def _require_same(folder: StudyFolder, spec: StudySpec) -> None:
    if (folder.path / _STUDY).exists() and (difference := spec.difference(StudySpec.read(folder))):
        raise ValueError(
            f"The study {folder.name!r} is another one ({difference}); give the new one a name of its own."
        )


def _keep_space(folder: StudyFolder, spec: StudySpec) -> None:
    """Keep a copy of a user's own space and of the parts beside it: the files of a job are gone when it ends."""
    if spec.has_file:
        parts = _parts(spec.space)
        if _SPACE in parts:
            raise ValueError(
                f"{spec.space} names a part {_SPACE}, as the study's copy of the space is called: rename it."
            )
        for name, source in {**parts, _SPACE: Path(spec.space)}.items():
            if source.is_file():
                (folder.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, folder.path / name)
                folder.mirror.push(name)


def _parts(space: str) -> dict[str, Path]:
    """Return the users' files that a space names and that can be kept beside it."""
    return {name: path for name, path in mentioned(space).items() if ".." not in Path(name).parts}


def space_of(folder: StudyFolder, spec: StudySpec) -> str:
    """Return the text by which `load_space` finds a study's space: its file, or the study's copy if that is gone.

    Raises:
        ValueError: If the space was made in Python, where nothing else can find it.
    """
    if spec.space.startswith(MADE_IN_PYTHON):
        raise ValueError(
            f"The study {folder.name!r} is of a space that was made in Python: the same call, with "
            f"`name={folder.name!r}`, continues it."
        )
    if not spec.has_file or Path(spec.space).exists():
        return spec.space
    kept = folder.path / _SPACE
    folder.mirror.pull(_SPACE)
    if kept.is_file():
        folder.mirror.pull(*_parts(str(kept)))
    return str(kept)


def write_objective(folder: StudyFolder, objective: Objective) -> None:
    """Record what ranks a study's trials: readers then need neither its space, which is code, nor its end."""
    write_json(folder.path / _OBJECTIVE, objective.as_json())
    folder.mirror.push(_OBJECTIVE)


def read_objective(folder: StudyFolder) -> Objective | None:
    """Return what ranks a study's trials; None if the study has not recorded it."""
    with suppress(OSError, ValueError):
        return parsed(folder.path / _OBJECTIVE, _objective_of)
    return None


def _objective_of(content: Any) -> Objective:
    return record(Objective, {name: content[name] for name in ("metric", "mode")})  # neither has a default here


def latest_study(storage: Storage, kind: str = SEARCH) -> str:
    """Return the name of the study that was last begun or resumed.

    Raises:
        ValueError: If there is none of this kind.
    """
    storage.pull_heads()
    of_kind = [path for path in storage.path.glob("*/study.json") if _kind_of(path) == kind]
    found = sorted(of_kind, key=_last_worked_on)
    if not found:
        what = "study" if kind == SEARCH else kind
        raise ValueError(f"There is no {what} in {storage} to resume.")
    return found[-1].parent.name


def _last_worked_on(path: Path) -> float:
    """Return when the lock was last held or, in a copy without it, when study.json was written."""
    try:
        return (path.parent / LOCK).stat().st_mtime
    except FileNotFoundError:
        return path.stat().st_mtime


def require_kind(folder: StudyFolder, spec: StudySpec, kind: str) -> None:
    """Raise a ValueError that says which command a study is of, unless it is of this kind."""
    if spec.kind != kind:
        name, options = _COMMANDS[spec.kind]
        raise ValueError(f"The study {folder.name!r} is not of this command: `{command(name)}{options}`.")


def _kind_of(path: Path) -> str:
    """Return the kind that `StudySpec.read` would find; errors are left to it."""
    try:
        return parsed(path, lambda content: str(table(content).get("kind", SEARCH)))
    except ValueError:
        return SEARCH
