"""The study that this process works on: its lock, its specification and the files that resume it.

A study belongs to one driver at a time: the kernel releases the lock when the process that holds it ends. A study
in a store also has a lease (see `pcl.studies.ledger.lease`).
"""

import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pcl.config.user_files import mentioned
from pcl.storage.files import warn, write_json
from pcl.storage.installation import command
from pcl.storage.locks import Timeout, process_lock
from pcl.studies.ledger.folders import LOCK, StudyFolder
from pcl.studies.ledger.lease import leased
from pcl.studies.ledger.study_spec import COMMANDS, MADE_IN_PYTHON, SEARCH, STUDY_FILE, StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.ledger.typed_json import parsed, record, table
from pcl.studies.space.search_space import Objective

_SPACE, _OBJECTIVE = "space.py", "objective.json"


@contextmanager
def opened(
    folder: StudyFolder, spec: StudySpec, on_lost: Callable[[], None] = lambda: None, *, is_resumed: bool = True
) -> Iterator[None]:
    """Hold the study's lock; write study.json, or check that it has the same specification.

    `on_lost` is called, in a thread of its own, if another process has taken over a study in a store. `is_resumed`
    makes it the study that was worked on last. A ValueError says that the folder has another study, or that a process
    is at work on it.
    """
    folder.mirror.pull(STUDY_FILE)
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
            if not (folder.path / STUDY_FILE).exists():
                _keep_space(folder, spec)
                write_json(folder.path / STUDY_FILE, spec.as_json())
                folder.mirror.push(STUDY_FILE)
            for sentence in folder.repair():
                warn(sentence)
            yield


def _require_same(folder: StudyFolder, spec: StudySpec) -> None:
    if (folder.path / STUDY_FILE).exists() and (difference := spec.difference(StudySpec.read(folder))):
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


def resuming(folder: StudyFolder, spec: StudySpec) -> str:
    """Return the command that resumes a study."""
    name, options = COMMANDS[spec.kind]
    storage = folder.mirror.uri.rpartition("/")[0] or folder.path.parent
    is_default = folder.path.parent.resolve() == Path("runs").resolve()
    which = f"{options} {shlex.quote(folder.name)}" if options else ""
    return f"{command(name)}{which}" + ("" if is_default else f" --storage {shlex.quote(str(storage))}")


def require_kind(folder: StudyFolder, spec: StudySpec, kind: str) -> None:
    """Raise a ValueError that says which command a study is of, unless it is of this kind."""
    if spec.kind != kind:
        raise ValueError(f"The study {folder.name!r} is of another command; `{resuming(folder, spec)}` resumes it.")


def _kind_of(path: Path) -> str:
    """Return the kind that `StudySpec.read` would find; errors are left to it."""
    try:
        return parsed(path, lambda content: str(table(content).get("kind", SEARCH)))
    except ValueError:
        return SEARCH
