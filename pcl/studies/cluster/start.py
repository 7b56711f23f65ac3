"""Ray's start, which may take minutes: it answers signals meanwhile, and retries on a busy machine.

Ray's raylet gives its Python helpers fifteen seconds to import what they need, which no setting changes, and dies if
they need longer; a minute later its driver gives up. The next attempt finds their files in the page cache.
"""

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TypeVar

from pcl.studies.cluster.process_end import end_process

T = TypeVar("T")

MOST_TRIES = 4
_SOON_S = 15.0  # a start that fails sooner did not time out: the next would fail as well
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_stopped = threading.Event()  # set when a signal is about to end this process


class NotStarted(ValueError):
    """Ray could not be started or joined; the message is one sentence, its notes are Ray's own output."""


@contextmanager
def answering(stopped: str) -> Iterator[None]:
    """End this process and Ray's at once on Ctrl-C or SIGTERM, with the message `stopped`.

    Ray's native code runs no handler while it waits.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    screen = os.dup(2)  # stderr itself may be redirected meanwhile
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    before = {number: signal.signal(number, _do_nothing) for number in _SIGNALS}
    descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_answer, args=(reader, screen, stopped), name="pcl-signals", daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(descriptor)
        for number, handler in before.items():  # Ray has replaced our SIGTERM handler by one that exits
            signal.signal(number, handler)
        writer.close()
        thread.join()
        reader.close()
        os.close(screen)
        _stopped.clear()  # in tests, the process continues


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Handle a signal, without which it is not written to the wakeup descriptor."""


def _answer(reader: socket.socket, screen: int, stopped: str) -> None:
    while numbers := reader.recv(16):
        if set(_SIGNALS) & set(numbers):
            _stopped.set()
            os.write(screen, f"\n{sys.argv[0]}: {stopped}.\n".encode())
            end_daemons()
            end_process(130)


@contextmanager
def quiet_stderr() -> Iterator[None]:
    """Capture what is written to stderr, also by Ray's C++ code, and show it when the context ends.

    If an exception ends the context, the output becomes a note of it instead. If a signal is being answered, nothing is
    shown: Ray's own handler raises wherever it interrupts Python, which prints "Exception ignored" in a callback.
    """
    sys.stderr.flush()
    screen, text = os.dup(2), ""
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)

        def ended() -> str:
            sys.stderr.flush()
            os.dup2(screen, 2)
            os.close(screen)
            file.seek(0)
            return file.read().decode(errors="replace")

        try:
            yield
        except BaseException as error:
            text = ended()
            error.add_note(text)
            raise
        text = ended()
    if not _stopped.is_set():
        sys.stderr.write(text)


def tried(start: Callable[[int], T], say: Callable[[str], None]) -> T:
    """Return the result of a start, called with the attempt's number from 1; retry if it fails for lack of time."""
    n_tries = 1
    while True:
        began = time.monotonic()
        try:
            return start(n_tries)
        except Exception:  # Ray raises bare ones
            if _stopped.is_set() or n_tries == MOST_TRIES or time.monotonic() - began < _SOON_S:
                raise
        n_tries += 1
        say(f"Ray has not started in time, this machine is busy; trying again ({n_tries} of {MOST_TRIES}) ...")
        end_daemons(left="gcs_server")  # this process has clients of it, which would end the process


def end_daemons(left: str = "") -> None:
    """Kill the processes that Ray has started from this process, except daemons named `left`."""
    if "psutil" not in sys.modules:  # comes with Ray, which has not been imported yet
        return
    import psutil  # noqa: PLC0415  comes with Ray
    import ray  # noqa: PLC0415  reads the environment that was set

    folder = str(Path(ray.__file__).parent)
    for act in (psutil.Process.suspend, psutil.Process.kill):  # a suspended process starts no others
        for child in psutil.Process().children(recursive=True):
            with suppress(psutil.Error, IndexError):  # it has exited by itself
                words = child.cmdline()
                if any(word.startswith(folder) for word in words) and Path(words[0]).name != left:
                    act(child)
