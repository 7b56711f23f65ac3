"""Body of `launch/verify.py`: verify studies and print the result."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path

from launch.shared.command import say
from launch.shared.common_flags import print_json
from pcl.storage.object_stores import is_address
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.tracking.store import Store, tracking_uri
from pcl.studies.verification.problem import Remedy
from pcl.studies.verification.verifier import Verification, verify


@dataclass(frozen=True)
class VerifyRequest:
    """A request to `launch/verify.py`.

    Attributes:
        source: A study or a storage; None for all studies of `storage`.
        storage: Where studies are kept.
        tracking_uri: MLflow's store; None for the environment's or the storage's own.
        is_json: Print JSON.
    """

    source: str | None
    storage: Storage
    tracking_uri: str | None
    is_json: bool


def verify_studies(request: VerifyRequest) -> bool:
    """Verify studies and print what was found; return whether all are sound.

    Raises:
        ValueError: If there is no such study, or a process is working on it.
    """
    storage, folders = _studies(request)
    storage.require_tracking(request.tracking_uri)
    store = Store(tracking_uri(request.tracking_uri, folders[0].path.parent))
    if store.database is None or store.database.exists():
        store.check()
    if len(folders) == 1:
        found: list[Verification | str] = [_verified(folders[0], store)]
    else:
        found = [_attempted(folder, store) for folder in folders]
    if request.is_json:
        print_json([_entry(verification) for verification in found])
    return all(isinstance(verification, Verification) and verification.is_sound for verification in found)


def _attempted(folder: StudyFolder, store: Store) -> Verification | str:
    """Verify one of several studies; return the reason if it cannot be verified, for instance because it is running."""
    try:
        return _verified(folder, store)
    except ValueError as error:
        say(f"{folder.name}: not verified: {error}")
        return str(error)


def _studies(request: VerifyRequest) -> tuple[Storage, list[StudyFolder]]:
    """Return the requested studies and their storage."""
    source, storage = request.source, request.storage
    if source is not None and (is_address(source) or "/" in source or Path(source).is_dir()):
        place = source if is_address(source) else os.path.abspath(os.path.expanduser(source))
        storage = Storage.of(place)
        above, _, name = place.rstrip("/").rpartition("/")
        study = Storage.of(above).study(name) if name and not above.endswith(":/") else None
        if study is not None and study.has_begun():
            return Storage.of(above), [study]
    elif source is not None:
        storage.check_readable()
        return storage, [storage.study(source)]
    storage.check_readable()
    storage.pull_heads()
    names = sorted(path.parent.name for path in storage.path.glob("*/study.json"))
    if not names:
        raise ValueError(f"There is no study in {storage}.")
    return storage, [storage.study(name) for name in names]


def _verified(folder: StudyFolder, store: Store) -> Verification:
    told = 0

    def progress(done: int, total: int) -> None:
        nonlocal told
        if done * 10 // total > told and total >= 50:
            told = done * 10 // total
            say(f"{folder.name}: {done:,} of {total:,} trials")

    found = verify(folder, store, progress)
    _tell(found, store)
    return found


def _tell(found: Verification, store: Store) -> None:
    trials = f"{found.n_trials} trials, {found.n_ended} ended; MLflow {store.shown_uri}"
    if found.is_sound:
        say(f"{found.study}: sound ({trials})")
        return
    n_mended = sum(problem.remedy is Remedy.RESUME for problem in found.problems)
    say(f"{found.study}: {len(found.problems)} problems, of which resuming repairs {n_mended} ({trials})")
    for problem in found.problems:
        say(f"  {problem}")


def _entry(found: Verification | str) -> dict[str, object]:
    if isinstance(found, str):
        return {"error": found}
    problems = [{**asdict(problem), "remedy": problem.remedy.name.lower()} for problem in found.problems]
    return {**asdict(found), "sound": found.is_sound, "problems": problems}
