"""Verification of studies, as a command says it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from launch.shared.command import say
from pcl.storage.object_stores import is_address
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_storage import Storage, study_at
from pcl.studies.tracking.store import Store, shown_uri, tracking_uri
from pcl.studies.verification.problem import Remedy
from pcl.studies.verification.verifier import Verification, verify


@dataclass(frozen=True)
class VerifyRequest:
    """A request to `launch/verify.py`.

    Attributes:
        source: A study or a storage; None for all studies of `storage`.
        storage: Where studies are kept.
        tracking_uri: MLflow; None for the environment's or the storage's own.
        is_json: Print JSON.
    """

    source: str | None
    storage: Storage
    tracking_uri: str | None
    is_json: bool


def verify_studies(request: VerifyRequest) -> bool:
    """Verify and say what was found; return whether all is sound.

    Raises:
        ValueError: If there is no such study, or a process works on it.
    """
    folders = _studies(request)
    store = Store(tracking_uri(request.tracking_uri, folders[0].path.parent.absolute()))
    if store.database is None or store.database.exists():
        store.check()
    found = [_verified(folder, store, request.is_json) for folder in folders]
    if request.is_json:
        say(json.dumps([_entry(verification) for verification in found], indent=2))
    return all(verification.is_sound for verification in found)


def _studies(request: VerifyRequest) -> list[StudyFolder]:
    """Return the studies that are asked for."""
    source, storage = request.source, request.storage
    if source is not None and (is_address(source) or "/" in source or Path(source).is_dir()):
        storage = Storage.of(source)
        study = study_at(source) if is_address(source) else StudyFolder(Path(source))
        study.mirror.pull("study.json")
        if (study.path / "study.json").exists():
            return [study]
    elif source is not None:
        storage.check_readable()
        return [storage.study(source)]
    storage.check_readable()
    storage.pull_heads()
    names = sorted(path.parent.name for path in storage.path.glob("*/study.json"))
    if not names:
        raise ValueError(f"There is no study in {storage}.")
    return [storage.study(name) for name in names]


def _verified(folder: StudyFolder, store: Store, is_quiet: bool) -> Verification:
    told = 0

    def progress(done: int, total: int) -> None:
        nonlocal told
        if done * 10 // total > told and total >= 50:
            told = done * 10 // total
            say(f"{folder.name}: {done:,} of {total:,} trials")

    found = verify(folder, store) if is_quiet else verify(folder, store, progress)
    if not is_quiet:
        _tell(found, store)
    return found


def _tell(found: Verification, store: Store) -> None:
    trials = f"{found.n_trials} trials, {found.n_ended} ended; MLflow {shown_uri(store.uri)}"
    if found.is_sound:
        say(f"{found.study}: sound ({trials})")
        return
    n_mended = sum(problem.remedy is Remedy.RESUME for problem in found.problems)
    say(f"{found.study}: {len(found.problems)} problems, of which `--resume` mends {n_mended} ({trials})")
    for problem in found.problems:
        say(f"  {problem}")


def _entry(found: Verification) -> dict[str, object]:
    problems = [{**asdict(problem), "remedy": problem.remedy.name.lower()} for problem in found.problems]
    return {**asdict(found), "sound": found.is_sound, "problems": problems}
