"""Ends a process right before each thing that it writes, one after the other, as a kill at that moment would.

A hook of the interpreter sees every file that Python opens for writing, renames, links or deletes, so that new code is
covered without being named. Writes that the interpreter does not see (a store's, a database's) are announced by
`announce`. The moment after a write is the moment before the next one, or the end.
"""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from pcl import mirror

_CHANGES = {"os.rename", "os.remove", "os.link", "os.mkdir", "os.rmdir", "os.truncate", "pcl.write"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_KILLED = 77


def crash_points(tmp_path: Path, act: Callable[[Path], None], prepare: Callable[[Path], None]) -> Iterator[Path]:
    """Yield a folder for each moment at which `act` was killed in it; ends when `act` comes to its end.

    Args:
        tmp_path: Has a folder for each.
        act: What is killed, in a process of its own.
        prepare: Makes what `act` finds in the folder.
    """
    for moment in range(1_000):
        folder = tmp_path / str(moment)
        folder.mkdir()
        prepare(folder)
        code = _code_of(lambda folder=folder, moment=moment: _killed_at(moment, folder, act))  # type: ignore[misc]
        if code == 0:
            return
        assert code == _KILLED, f"ended with {code} at moment {moment}"
        yield folder
    raise AssertionError("there is no end to what is written")


def announce(what: str) -> None:
    """Say that something is about to be written that the interpreter does not see."""
    sys.audit("pcl.write", what)


def _code_of(do: Callable[[], None]) -> int:
    """Return the exit code of a copy of this process that does something."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads, which none of these writes needs
        process = os.fork()
    if process == 0:
        try:
            do()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", file=sys.__stderr__, flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def _killed_at(moment: int, folder: Path, act: Callable[[Path], None]) -> None:
    left = [moment]

    def see(name: str, arguments: tuple[Any, ...]) -> None:
        is_change = name in _CHANGES or (name == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING)
        if is_change and str(folder) in str(arguments):
            left[0] -= 1
            if left[0] < 0:
                os._exit(_KILLED)

    _announce_stores()
    event.listen(Engine, "commit", lambda connection: announce(str(connection.engine.url)))
    sys.addaudithook(see)
    act(folder)


def _announce_stores() -> None:
    write, delete = mirror.write, mirror.Mirrored._delete

    def announced_write(store: Any, path: str, content: bytes) -> None:
        announce(path)
        write(store, path, content)

    def announced_delete(store: mirror.Mirrored, name: str) -> None:
        announce(f"{store.uri}/{name}")
        delete(store, name)

    mirror.write, mirror.Mirrored._delete = announced_write, announced_delete  # type: ignore[method-assign]
