"""Local copies of folders in an object store, such as s3://bucket/prefix.

Work is done on the local copy. Writers push a file after replacing it, which the store does atomically too; readers
pull what others have written. A plain folder has the mirror that does nothing.
"""

import os
import time
import uuid
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar, final
from urllib.parse import unquote, urlsplit

from pcl.storage.files import replacing
from pcl.storage.object_stores import check_address, connected, joined, read, told, write

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

T = TypeVar("T")

_AT_ONCE = 16  # parallel transfers
_PATIENCE_S = 60.0  # how long a store that has answered before may be unreachable
_LONGEST_PAUSE_S = 8.0


class _Info(NamedTuple):
    """A store's metadata of a file."""

    name: str
    size: int
    time_s: float


class Mirror:
    """A folder's connection to its store; this class, for plain folders, does nothing.

    Names are those of files in the folder, with `/` between parts.
    """

    uri: str = ""  # of the folder in the store; empty for a plain folder

    def push(self, *names: str) -> None:
        """Upload files."""

    def push_all(self, left_out: Collection[str] = ()) -> None:
        """Upload every file, except those whose name or top-level folder is in `left_out`."""

    def pull(self, *names: str) -> None:
        """Download files; delete local files that the store lacks."""

    def pull_all(self, left_out: Collection[str] = ()) -> None:
        """Download every file and delete local files that the store lacks; `left_out` is as in `push_all`."""

    def delete(self, *names: str) -> None:
        """Delete files from the store; missing ones are ignored."""

    def inside(self, name: str) -> "Mirror":
        """Return the mirror of a folder in this one."""
        return self

    def beside(self, name: str) -> "Mirror":
        """Return the mirror of a sibling of this folder."""
        return self


UNMIRRORED = Mirror()


@final
class Mirrored(Mirror):
    """The local copy at `path` of a folder `uri` in a store.

    Raises:
        OSError: In all methods, if the store cannot be reached for a minute or refuses; the message is a sentence.

    Example:
        >>> import tempfile
        >>> here, there, elsewhere = (Path(tempfile.mkdtemp()) for _ in range(3))
        >>> _ = (here / "numbers.txt").write_text("1 2 3")
        >>> Mirrored(here, there.as_uri()).push("numbers.txt")
        >>> Mirrored(elsewhere, there.as_uri()).pull_all()
        >>> (elsewhere / "numbers.txt").read_text()
        '1 2 3'
    """

    def __init__(self, path: Path, uri: str) -> None:
        self.path, self.uri = path, uri

    def push(self, *names: str) -> None:
        self._each(self._push, names)

    def push_all(self, left_out: Collection[str] = ()) -> None:
        self.push(*self._here(left_out))

    def pull(self, *names: str) -> None:
        self._each(self._pull, names)

    def pull_all(self, left_out: Collection[str] = ()) -> None:
        there = set(_wanted(self.names(), left_out))
        for name in set(self._here(left_out)) - there:
            (self.path / name).unlink(missing_ok=True)
        self.pull(*sorted(there))

    def pull_changed(self, pattern: str) -> None:
        """Download the files that match a pattern and differ in size or time; other files stay."""
        for info in self._infos():
            path = self.path / info.name
            if not path.match(pattern):
                continue
            if not path.exists() or (path.stat().st_size, path.stat().st_mtime) != (info.size, info.time_s):
                self._pull(info.name)
                with suppress(FileNotFoundError):  # deleted meanwhile
                    os.utime(path, (info.time_s, info.time_s))

    def delete(self, *names: str) -> None:
        self._each(self._delete, names)

    def inside(self, name: str) -> "Mirrored":
        return Mirrored(self.path / name, joined(self.uri, name))

    def beside(self, name: str) -> "Mirrored":
        return Mirrored(self.path.with_name(name), joined(self.uri, name, depth=1))

    def names(self) -> list[str]:
        """Return the names of all files in the store, in nested folders too."""
        return [info.name for info in self._infos()]

    def folders(self) -> list[str]:
        """Return the names of the folders directly in this one, in the store."""
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415  a tenth of a second

        store, root = self._store()
        found = self._patient(lambda: store.get_file_info(FileSelector(root, allow_not_found=True)))
        return sorted(info.base_name for info in found if info.type == FileType.Directory)

    def time_of(self, name: str) -> float:
        """Return when a file was last uploaded, by the store's clock, in seconds since 1970; 0 if it is not there."""
        store, root = self._store()
        when = self._patient(lambda: store.get_file_info(f"{root}/{name}")).mtime
        return when.timestamp() if when is not None else 0.0

    def check(self) -> None:
        """Raise a ValueError unless files can be written to the store and read back; no retries."""
        check_address(self.uri)
        name = f".probe-{uuid.uuid4().hex}"
        try:
            store, root = self._store()
            write(store, f"{root}/{name}", b"probe")
            if read(store, f"{root}/{name}") != b"probe":
                raise OSError("it returns something else than was written")
            store.delete_file(f"{root}/{name}")
        except (OSError, ValueError, NotImplementedError) as error:
            raise ValueError(f"{self.uri} cannot be written to: {told(error)}.") from None

    def check_readable(self) -> None:
        """Raise a ValueError unless the store answers; no retries."""
        check_address(self.uri)
        from pyarrow.fs import FileSelector  # noqa: PLC0415  a tenth of a second

        try:
            store, root = self._store()
            store.get_file_info(FileSelector(root, allow_not_found=True))
        except (OSError, ValueError, NotImplementedError) as error:
            raise ValueError(f"{self.uri} cannot be read: {told(error)}.") from None

    def _store(self) -> "tuple[FileSystem, str]":
        """Return pyarrow's file system for the address, and the folder's path in it."""
        parts = urlsplit(self.uri)
        store, base = connected(parts._replace(path="/" if parts.netloc == "" else "").geturl())
        place = f"{base.rstrip('/')}/{unquote(parts.path).strip('/')}".rstrip("/")
        return store, place.lstrip("/") if parts.netloc else place

    def _infos(self) -> list[_Info]:
        """Return the metadata of all files in the store, by name."""
        from pyarrow.fs import FileSelector, FileType  # noqa: PLC0415  a tenth of a second

        store, root = self._store()
        select = FileSelector(root, allow_not_found=True, recursive=True)
        found = [info for info in self._patient(lambda: store.get_file_info(select)) if info.type == FileType.File]
        return sorted(_Info(info.path[len(root) + 1 :], info.size, info.mtime.timestamp()) for info in found)

    def _push(self, name: str) -> None:
        content = (self.path / name).read_bytes()
        store, root = self._store()
        self._patient(lambda: write(store, f"{root}/{name}", content))

    def _pull(self, name: str) -> None:
        store, root = self._store()
        try:
            content = self._patient(lambda: read(store, f"{root}/{name}"))
        except FileNotFoundError:
            (self.path / name).unlink(missing_ok=True)
            return
        with replacing(self.path / name) as unfinished:
            unfinished.write_bytes(content)

    def _delete(self, name: str) -> None:
        store, root = self._store()
        with suppress(FileNotFoundError):
            self._patient(lambda: store.delete_file(f"{root}/{name}"))

    def _here(self, left_out: Collection[str]) -> list[str]:
        files = (path for path in sorted(self.path.rglob("*")) if path.is_file() and path.suffix != ".tmp")
        return _wanted((path.relative_to(self.path).as_posix() for path in files), left_out)

    def _each(self, do: Callable[[str], None], names: Collection[str]) -> None:
        if len(names) < 2:
            for name in names:
                do(name)
            return
        with ThreadPoolExecutor(min(_AT_ONCE, len(names))) as pool:
            list(pool.map(do, names))

    def _patient(self, ask: Callable[[], T]) -> T:
        """Call `ask` until it returns; retry while the store is unreachable, for at most a minute."""
        deadline, pause_s = time.monotonic() + _PATIENCE_S, 0.5
        while True:
            try:
                return ask()
            except FileNotFoundError:
                raise
            except OSError as error:
                if time.monotonic() + pause_s > deadline:
                    raise OSError(f"{self.uri} cannot be used: {told(error)}") from None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def _wanted(names: Iterable[str], left_out: Collection[str]) -> list[str]:
    return [n for n in names if n.partition("/")[0] not in left_out and n.rpartition("/")[2] not in left_out]


def mirror_of(path: Path, uri: str) -> Mirror:
    """Return the mirror of a folder: of a local copy if there is an address, else of a plain folder."""
    return Mirrored(path, uri) if uri else UNMIRRORED
