"""Storage of studies: a folder, or a store such as s3://bucket/prefix that every machine has a copy of.

A cluster whose nodes share no disk can share a store. Workers and drivers read and write copies of their own
(see `pcl.storage.mirror`), but only the store counts: any machine that reaches it can continue a study.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pcl.config.suggestion import suggestion
from pcl.storage.mirror import UNMIRRORED, Mirror, Mirrored
from pcl.storage.object_stores import check_address, copy_of, is_address

if TYPE_CHECKING:
    from pcl.studies.ledger.folders import StudyFolder

_AT_ONCE = 8  # studies downloaded concurrently


@dataclass(frozen=True)
class Storage:
    """A folder or store of studies."""

    path: Path  # folder of the studies; for a store, this machine's copy
    mirror: Mirror = UNMIRRORED  # the store that `path` is a copy of

    @classmethod
    def of(cls, text: str) -> "Storage":
        """Parse a folder or an address; `check` raises an error if it cannot be used."""
        if not is_address(text):
            return cls(Path(text))
        parts = urlsplit(text)
        if parts.scheme == "file":
            return cls(Path(unquote(parts.path)))
        path = copy_of(text)
        return cls(path, Mirrored(path, text.rstrip("/")))

    def __str__(self) -> str:
        return self.mirror.uri or str(self.path)

    @property
    def is_store(self) -> bool:
        return bool(self.mirror.uri)

    def check(self) -> None:
        """Raise a ValueError unless it can be written to; for a missing folder, its nearest parent must be writable."""
        if isinstance(self.mirror, Mirrored):
            check_address(self.mirror.uri)
            try:
                self.mirror.check()
            except ValueError as error:
                raise ValueError(f"`storage` must be a folder, or a store's address, but {error}") from None
        place = self.path
        while not place.exists() and place != place.parent:
            place = place.parent
        if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
            what = f"{self.path}, where PCL_CACHE puts copies," if self.is_store else str(self.path)
            raise ValueError(f"`storage` must be a folder that can be written to, but {what} is not.")

    def check_readable(self) -> None:
        """Raise a ValueError at once if a store does not answer; a folder need not exist."""
        if isinstance(self.mirror, Mirrored):
            self.mirror.check_readable()

    def require_tracking(self, tracking_uri: str | None) -> None:
        """Raise a ValueError if studies are in an object store and no tracking server is given."""
        if not self.is_store:
            return
        check_address(self.mirror.uri)
        if not (tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")):
            raise ValueError(
                f"An MLflow server must be named for studies in {self}: machines that share a store do not share a "
                f"database on one of them; give its address, or set MLFLOW_TRACKING_URI."
            )

    def require_study(self, text: str) -> None:
        """Raise a ValueError with the nearest name if no folder has this study; stores are checked when they are read.

        `text` is a study's name in this storage, its folder or its address. Unlike `study`, this loads no torch.
        """
        place = Path(os.path.expanduser(text)) if "/" in text else self.path / text
        if not (is_address(text) or (self.is_store and "/" not in text) or place.exists()):
            hint = _nearest(place.name, place.parent)
            raise ValueError(f"There is no study {place.name!r} in {place.parent}.{hint}")

    def require_source(self, text: str) -> None:
        """Raise a ValueError unless a text names a study, as in `require_study`, or the file or folder of a trial."""
        path = Path(os.path.expanduser(text))
        if not (is_address(text) or self.is_store or path.exists() or (self.path / path / "study.json").is_file()):
            hint = _nearest(text, self.path)
            raise ValueError(f"There is no study {text!r} in {self}, and no checkpoint {path}.{hint}")

    def study(self, name: str) -> "StudyFolder":
        """Return a study in it, which need not exist yet."""
        from pcl.studies.ledger.folders import StudyFolder  # noqa: PLC0415  torch: -h answers at once

        return StudyFolder(self.path / name, self.mirror.inside(name))

    def pull_heads(self) -> None:
        """Download which studies there are, when they were last worked on, and what they found."""
        from pcl.studies.ledger.folders import LEASE, LOCK  # noqa: PLC0415  torch: -h answers at once

        if not isinstance(self.mirror, Mirrored):
            return
        names, mirror = self.mirror.folders(), self.mirror
        for path in self.path.glob("*/study.json"):
            if path.parent.name not in names:
                path.unlink()

        def pull(name: str) -> None:
            study = mirror.inside(name)
            study.pull("study.json", "summary.json")
            if (study.path / "study.json").exists():
                last = study.time_of(LEASE)
                (study.path / LOCK).touch()
                os.utime(study.path / LOCK, (last, last))

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(pull, names))

    def checkpoint_of(self, key: str) -> Path | None:
        """Return the checkpoint of a trial, from whichever study trained it."""
        if isinstance(self.mirror, Mirrored):
            for name in self.mirror.folders():
                self.study(name).trial(key).mirror.pull("trial.json", "result.json", "checkpoint.pt")
        return next(iter(sorted(self.path.glob(f"*/trials/{key}/checkpoint.pt"))), None)


def _nearest(name: str, folder: Path) -> str:
    """Return a suggestion: the study in a folder with the most similar name."""
    return suggestion(name, [path.parent.name for path in folder.glob("*/study.json")])


def storage_of(study: "StudyFolder") -> Storage:
    """Return the storage that a study is in."""
    parts = urlsplit(study.mirror.uri)
    return Storage.of(parts._replace(path=parts.path.rpartition("/")[0]).geturl() or str(study.path.parent))


def study_at(uri: str) -> "StudyFolder":
    """Return a study by its address: its storage's and its name.

    Raises:
        ValueError: If the store does not answer, or the address names no study in one.
    """
    parts = urlsplit(uri)
    folder, _, name = unquote(parts.path).rstrip("/").rpartition("/")
    if not name:
        raise ValueError(f"{parts.scheme}://{parts.hostname} must be followed by the name of a study.")
    storage = Storage.of(parts._replace(path=folder).geturl())
    storage.check_readable()
    return storage.study(name)
