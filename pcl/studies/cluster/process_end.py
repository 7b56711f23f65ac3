"""The end of a process that has called Ray: some of Ray's C++ destructors, which run last of all, may wait for ever.

They join threads of Ray, and one that is blocked never ends. So an orderly exit takes every step of Python's own: exit
handlers run and files are written. Then the process ends without destructors: of a command, whose code is known, right
after the exit handlers; of a user's own script, where C would call the destructors. There, `on_exit` skips the native
exit handlers of other libraries too: they were registered before, and C calls the last one first.
"""

import _io
import atexit
import ctypes
import gc
import os
import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

_PATIENCE_S = 60.0  # how long exit handlers may take; they remove temporary folders and end Ray's processes
_UNWRITTEN = 120  # Python's exit code where stdout or stderr cannot be written
_n_calls = 0


def note_ray_call() -> None:
    """Remember that Ray is started or joined: its native threads run from now on."""
    global _n_calls  # noqa: PLW0603  one number for the process
    if not _n_calls:
        atexit.register(_skip_destructors)
    _n_calls += 1


def n_ray_calls() -> int:
    """Return how often this process has started or joined Ray."""
    return _n_calls


def _skip_destructors() -> None:
    """Have C write its files and end this process with Python's exit code, instead of running destructors."""
    with suppress(OSError, TypeError, AttributeError):  # systems without glibc
        c = ctypes.CDLL(None)
        c.on_exit(c._exit, None)  # gets the exit code
        c.on_exit(c.fcloseall, None)  # the last one that is registered is called first


def end_process(code: int) -> NoReturn:
    """Exit at once: an orderly exit would call Ray, which has ended."""
    os._exit(code if _is_written() else _UNWRITTEN)


def end_without_destructors(code: int) -> None:
    """Have this process end with a code right after Python's exit handlers, before native destructors.

    Handlers that take longer than a minute are left: by then, everything is flushed and recorded. A session of IPython
    or `python -i` goes on after the command, and ends as it would.
    """
    if sys.flags.interactive or "IPython" in sys.modules:
        return
    has_begun = threading.Event()
    threading.Thread(target=_limit, args=(has_begun, code), name="pcl-exit", daemon=True).start()
    atexit.register(_end, os.getpid(), has_begun, code)  # the last one that is registered is called first


def _end(owner: int, has_begun: threading.Event, code: int) -> None:
    atexit.unregister(_end)
    if os.getpid() != owner:  # a fork, whose end is its own
        return
    has_begun.set()
    try:
        _write_files()
        atexit._run_exitfuncs()  # all others, also those that were registered before
        _write_files()
    finally:  # also where Ctrl-C interrupts this
        end_process(code)


def _limit(has_begun: threading.Event, code: int) -> None:
    has_begun.wait()
    time.sleep(_PATIENCE_S)
    with suppress(OSError):
        os.write(2, f"{sys.argv[0]}: exit handlers took longer than {_PATIENCE_S:g} s and were left.\n".encode())
    os._exit(code)


def _write_files() -> None:
    """Flush all open files of Python, as their deletion would, and those of C."""
    for stream in [found for found in gc.get_objects() if issubclass(type(found), _io._IOBase)]:
        with suppress(Exception):  # it is closed, is only read, or its reader has gone
            stream.flush()
    with suppress(OSError, TypeError):  # Windows has no such library
        ctypes.CDLL(None).fflush(None)


def _is_written() -> bool:
    """Flush stdout and stderr; return whether all was written."""
    is_written = True
    for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
        if stream is None or getattr(stream, "closed", False):
            continue
        try:
            stream.flush()
        except Exception as error:  # a caller's own stream may raise any
            is_written = False
            with suppress(OSError):
                os.write(2, f"{sys.argv[0]}: {name} could not be written: {error}.\n".encode())
    return is_written
