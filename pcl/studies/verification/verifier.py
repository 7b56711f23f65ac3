"""Verification of a whole study; nothing is repaired."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pcl.storage.locks import Timeout, process_lock
from pcl.studies.ledger.folders import LOCK, TRIALS, StudyFolder, TrialFolder
from pcl.studies.ledger.lease import is_leased
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.results.selection import Outcome
from pcl.studies.tracking.store import Store
from pcl.studies.verification.output_checks import output_problems
from pcl.studies.verification.problem import Problem, Remedy
from pcl.studies.verification.tracking_checks import tracking_problems
from pcl.studies.verification.trial_checks import trial_problems, unfinished_problems


@dataclass(frozen=True)
class Verification:
    """The result of verifying a study.

    Attributes:
        study: Its name.
        n_trials: Number of trials' folders.
        n_ended: Number of those with a result.
        problems: Broken invariants; empty for a sound study, whether or not it has ended.
    """

    study: str
    n_trials: int
    n_ended: int
    problems: tuple[Problem, ...]

    @property
    def is_sound(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems


def verify(
    folder: StudyFolder, store: Store | None, progress: Callable[[int, int], None] = lambda done, total: None
) -> Verification:
    """Check every invariant of a study's records.

    Args:
        folder: The study. From an object store, its files are downloaded first, except checkpoints.
        store: MLflow; None skips its runs.
        progress: Called with the number of trials checked so far and their total.

    Raises:
        ValueError: If there is no study, its study.json cannot be read, or a process works on it.
    """
    StudySpec.read(folder)
    with _held(folder):
        folder.pull()
        return _verify(folder, store, progress)


@contextmanager
def _held(folder: StudyFolder) -> Iterator[None]:
    """Keep out this machine's drivers; a copy that no driver has worked on has no lock file, and gets none."""
    at_work = ValueError(f"A process is at work on the study {folder.name!r}; verify it when that has ended.")
    if is_leased(folder):
        raise at_work
    if not (folder.path / LOCK).exists():
        yield
        return
    try:
        lock = process_lock(folder.path / LOCK).acquire(blocking=False)
    except Timeout:
        raise at_work from None
    with lock:
        yield


def _verify(folder: StudyFolder, store: Store | None, progress: Callable[[int, int], None]) -> Verification:
    folders = [folder.trial(path.name) for path in sorted((folder.path / TRIALS).glob("*/")) if path.is_dir()]
    problems = list(unfinished_problems(folder))
    readable: list[TrialFolder] = []
    unsound: set[str] = set()  # keys of trials that must be trained again: their runs do not matter
    for n_done, trial in enumerate(folders, start=1):
        found = trial_problems(trial)
        problems += found
        if _is_readable(trial):
            readable.append(trial)
            if any(problem.remedy is Remedy.RETRAIN for problem in found):
                unsound.add(trial.key)
        progress(n_done, len(folders))
    outcomes = {trial.key: Outcome.of(trial.trial(), trial) for trial in readable}
    problems += output_problems(folder, outcomes)
    if store is not None and store.database is not None and not store.database.exists():
        problems.append(Problem(str(store.database), "does not exist", Remedy.RESUME))
    elif store is not None:
        problems += tracking_problems(store, folder, [trial for trial in readable if trial.key not in unsound])
    n_ended = sum(outcome.result is not None for outcome in outcomes.values())
    return Verification(folder.name, len(folders), n_ended, tuple(problems))


def _is_readable(folder: TrialFolder) -> bool:
    try:
        folder.trial(), folder.rows(), folder.result()
    except (OSError, ValueError, RuntimeError):
        return False
    return True
