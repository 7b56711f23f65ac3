"""Pictures among the artifacts of studies. All else is left to MLflow: the board shows no pages from elsewhere."""

import math
import re
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from dashboards.board.store.records import Run, Study
from pcl.studies.tracking.store import Store, StoreError

_PATH = re.compile(r"(?:[A-Za-z0-9_.]+/)?[A-Za-z0-9_.]+\.png")
_MAGIC = b"\x89PNG\r\n\x1a\n"
_LARGEST = 8 * 2**20  # bytes of a picture
_PAUSE_S = 60.0  # after a failure: pages do not wait again for artifacts that cannot be reached
_MOST = 24  # pictures of a run


@dataclass(frozen=True)
class Figure:
    """A picture among the artifacts."""

    path: str  # in the artifacts
    address: str  # where the board has it


class Artifacts:
    """Artifacts of a store of MLflow. Thread-safe."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, int], list[str]] = {}  # by run and when it ended
        self._failed_s = -math.inf  # when the artifacts could not be reached
        self._lock = threading.Lock()
        self._turn = threading.Lock()  # held while asking the store: if it cannot be reached, only one thread waits

    def figures(self, study: Study) -> list[Figure]:
        """Return an ended study's pictures and its winner's, each once; empty if they cannot be reached."""
        if study.is_running:
            return []
        found: dict[str, Figure] = {}  # by file: the study's run and its winner's may have the same
        for run in _runs(study):
            for path in self._paths(run):
                name = path.rpartition("/")[2]
                found.setdefault(name, Figure(path, f"image-{run.id}-{path.replace('/', '--')}"))
        return list(found.values())

    def is_known(self, study: Study) -> bool:
        """Return whether `figures` of a study answers at once, without the store."""
        with self._lock:
            return study.is_running or all((run.id, run.end_ms) in self._known for run in _runs(study))

    def _paths(self, run: Run) -> list[str]:
        key = run.id, run.end_ms
        with self._lock:
            if key in self._known:
                return self._known[key]
        with self._turn:
            if key in self._known:
                return self._known[key]
            if time.monotonic() - self._failed_s < _PAUSE_S:
                return []
            try:
                listed = self._listed(run.id)
            except StoreError:
                self._failed_s = time.monotonic()
                return []
            with self._lock:
                self._known[key] = listed
            return listed

    def png(self, run_id: str, name: str) -> bytes | None:
        """Return a picture, if `figures` has named it."""
        path = name.replace("--", "/")
        known = {path for (run, _), paths in list(self._known.items()) if run == run_id for path in paths}
        if path not in known:
            return None
        with tempfile.TemporaryDirectory() as folder:
            try:
                file = self._store.call(lambda client: client.download_artifacts(run_id, path, folder))
                content = Path(file).read_bytes()
            except (StoreError, OSError):
                return None
        return content if content.startswith(_MAGIC) and len(content) <= _LARGEST else None

    def _listed(self, run_id: str) -> list[str]:
        found: list[str] = []
        folders = [""]
        for folder in folders:  # the list grows by those of the first level
            for entry in self._store.call(lambda client, folder=folder: client.list_artifacts(run_id, folder or None)):  # type: ignore[misc]
                if entry.is_dir and not folder:
                    folders.append(entry.path)
                elif not entry.is_dir and _PATH.fullmatch(entry.path):
                    found.append(entry.path)
        return found[:_MOST]


def _runs(study: Study) -> list[Run]:
    """Return the runs that have a study's figures: its own and its winner's."""
    return [study.run, *([study.winner.run] if study.winner else [])]
