"""Kills a process right before each thing that it writes, one after the other, or copies what a kill would leave.

A hook of the interpreter sees every file that Python opens for writing, renames, links or deletes, so that new code is
covered without being named. Stores and databases are written in C: their writes and commits are announced. The moment
after a write is the moment before the next one, or the end.
"""

import os
import shutil
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Engine, event

from pcl.storage import mirror

_CHANGES = {
    "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "sqlite3.connect", "pcl.write",
}  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
Act = Callable[[Path], object]
T = TypeVar("T")


def nothing(_: Path) -> None:
    """Find an empty folder."""


class Steps:
    """Counts what a process writes to a folder, or its SQL statements, and does something before each of them.

    Args:
        folder: Whose files count; of statements, all do.
        before: Called with the number of each before it happens, from 1 on.
        is_sql: Whether SQL statements and commits are counted, and nothing else.
    """

    def __init__(self, folder: Path, before: Callable[[int], object] = int, *, is_sql: bool = False) -> None:
        self.n, self._folder, self._before = 0, str(folder), before
        if is_sql:
            event.listen(Engine, "before_cursor_execute", self._step)
            event.listen(Engine, "commit", self._step)
        else:
            _announce_stores()
            event.listen(Engine, "commit", lambda connection: sys.audit("pcl.write", str(connection.engine.url)))
            sys.addaudithook(self._see)

    def _see(self, name: str, arguments: tuple[Any, ...]) -> None:
        is_written = name == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING
        if (is_written or name in _CHANGES) and self._folder in str(arguments):
            self._step()

    def _step(self, *_: object) -> None:
        self.n += 1
        self._before(self.n)


def crash_points(
    place: Path, act: Act, prepare: Act = nothing, at: Iterable[int] | None = None, *, is_sql: bool = False,
    every: int = 1,
) -> Iterator[Path]:  # fmt: skip
    """Yield a folder for each step at which `act` was killed in it, in a process of its own.

    Args:
        place: Has a folder for each.
        act: What is killed.
        prepare: Makes what `act` finds in the folder, once: the folders get copies.
        at: Numbers of the steps; by default all, up to the last.
        is_sql: See `Steps`.
        every: Of all steps, the first and every so many after it.
    """
    prepared = _prepared(place, prepare)
    for last in count(1, every) if at is None else at:
        folder = shutil.copytree(prepared, place / str(last))

        def kill(number: int, last: int = last) -> None:
            if number == last:
                os.kill(os.getpid(), signal.SIGKILL)

        code = _code_of(act, folder, kill, is_sql)
        assert code in (0, -signal.SIGKILL), f"ended with {code} at step {last}"
        if code == 0:
            assert at is None, f"there is no step {last}"
            return
        yield folder


def crash_states(place: Path, act: Act, prepare: Act = nothing, *, is_sql: bool = False, every: int = 1) -> list[Path]:
    """Return folders as `crash_points` yields them from one run of `act`, which is copied while it waits at a step.

    It is for what writes no absolute path and has no threads but those of pools, whose calls are made one after the
    other here; `act` is not killed, and others find what it has written. The copies are another process's: one that
    opens and closes a database gives up its locks.
    """
    folder = shutil.copytree(_prepared(place, prepare), place / "0")

    def act_alone(path: Path) -> None:
        ThreadPoolExecutor.submit = _submit  # type: ignore[method-assign]  # in the forked process alone
        act(path)

    def copy(number: int) -> None:
        if number % every == 1 % every:
            words = ["cp", "-a", str(folder), str(place / str(number))]
            assert not os.waitpid(os.posix_spawnp("cp", words, os.environ), 0)[1]

    code = _code_of(act_alone, folder, copy, is_sql)
    assert code == 0, f"ended with {code}"
    return sorted((found for found in place.iterdir() if found.name.isdecimal() and found != folder), key=_number)


def _submit(_: ThreadPoolExecutor, call: Callable[..., T], *given: object, **named: object) -> Future[T]:
    """Call at once."""
    future: Future[T] = Future()
    try:
        future.set_result(call(*given, **named))
    except Exception as error:  # whoever asks for the result is told
        future.set_exception(error)
    return future


def _number(folder: Path) -> int:
    return int(folder.name)


def _prepared(place: Path, prepare: Act) -> Path:
    folder = place / "prepared"
    folder.mkdir(parents=True)
    prepare(folder)
    return folder


def _code_of(act: Act, folder: Path, before: Callable[[int], object], is_sql: bool) -> int:
    """Return the exit code of a forked process that acts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of threads, which none of these writes needs
        child = os.fork()
    if child == 0:
        try:
            Steps(folder, before, is_sql=is_sql)
            act(folder)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _announce_stores() -> None:
    write, delete = mirror.write, mirror.Mirrored._delete

    def announced_write(store: Any, path: str, content: bytes) -> None:
        sys.audit("pcl.write", path)
        write(store, path, content)

    def announced_delete(store: mirror.Mirrored, name: str) -> None:
        sys.audit("pcl.write", f"{store.uri}/{name}")
        delete(store, name)

    mirror.write, mirror.Mirrored._delete = announced_write, announced_delete  # type: ignore[method-assign]
