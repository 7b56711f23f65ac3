"""Loss of Ray during a study: killed, out of memory, or by a SIGTERM to the process group that its daemons share.

A call to Ray afterwards blocks in its native code, which no signal interrupts, until Ray ends the process after a
minute; if only the raylets are gone, Tune waits for ever. So the driver makes no more calls: it leaves Tune where it
is, records the results so far, and exits without shutting Ray down. The workers follow it.
"""

import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NoReturn

from pcl.studies.cluster.process_end import end_process

_GRACE_S = 2.0  # how long daemons that got the same signal may take to exit; measured: 0.05 s on two busy cores
_PAUSE_S = 0.05
_WATCH_S = 1.0  # between two checks of a cluster
_ASK_S = 5.0  # between two queries of the list of nodes
_STUCK_S = 10.0  # how long the main thread may take to leave Tune
HERE_S, ELSEWHERE_S = 2.0, 15.0  # how long a cluster may be unreachable; others may restart its GCS
# Exceptions that brought a driver out of Tune. They are kept because their frames hold Tune's objects, which call Ray
# when they are garbage collected.
_kept: list[BaseException] = []


@dataclass(frozen=True)
class Daemons:
    """The processes of a cluster, each by HOST:PORT."""

    gcs: str  # the global control service, which knows all others
    nodes: Callable[[], Sequence[str]]  # returns the raylets of the living nodes
    patience_s: float = HERE_S  # how long they may be unreachable


class Leaving:
    """A driver's way out of Tune when Ray has ended."""

    def __init__(self) -> None:
        # For a driver that cannot be brought out: how the user continues, and what records its end, in a thread
        self.how_to_go_on: Callable[[], str] = lambda: "start it again"
        self.record: Callable[[], object] = lambda: None
        self._daemon = ""
        self._is_told = self._is_signalled = False

    @contextmanager
    def without(self, daemons: Daemons, on_lost: Callable[[str], None]) -> Iterator[None]:
        """Run a context that is left when a cluster, which a thread watches, has ended.

        `on_lost` is called with the cause before that; outside the main thread, it is only called.
        """
        self._daemon, is_over = daemons.gcs, threading.Event()
        is_main = threading.current_thread() is threading.main_thread()

        def lost(cause: str) -> None:
            on_lost(cause)
            if is_main:
                self._bring_out(cause, is_over)

        watch = threading.Thread(target=_watch, args=(daemons, lost, is_over), name="pcl-ray", daemon=True)
        watch.start()
        try:
            yield
        except KeyboardInterrupt as error:
            if not self._is_told:
                raise
            _kept.append(error)
        finally:
            self._daemon = ""
            is_over.set()

    def __reduce__(self) -> tuple[type["Leaving"], tuple[()]]:
        """Pickle without state: Tune pickles its stopper, and this with it, but never reads it again."""
        return Leaving, ()

    def look(self) -> None:
        """Leave the context, if there is one and the daemon has ended; call it in a handler of the main thread."""
        if self._daemon and _ends(self._daemon):
            self._leave()

    def answer(self) -> bool:
        """Return whether a signal came from the watching thread; if so, leave the context unless it is over."""
        is_own, self._is_signalled = self._is_signalled, False
        if is_own and self._daemon:
            self._leave()
        return is_own

    def _leave(self) -> NoReturn:
        self._is_told = True
        raise KeyboardInterrupt  # the one exception that Ray's own code lets through

    def _bring_out(self, cause: str, is_over: threading.Event) -> None:
        self._is_told = self._is_signalled = True
        main = threading.main_thread().ident
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        if not is_over.wait(_STUCK_S):  # blocked in Ray's native code, which only the end of the process interrupts
            with suppress(Exception):  # the message below must be printed
                self.record()
            print(f"\n{sys.argv[0]}: {cause}; {self.how_to_go_on()}.", file=sys.stderr)
            end_process(1)


def is_lost() -> bool:
    """Return whether Ray must not be called any more, not even to shut down."""
    return bool(_kept)


def _watch(daemons: Daemons, lost: Callable[[str], None], is_over: threading.Event) -> None:
    """Call `lost` once a cluster has been unreachable for longer than allowed."""
    nodes: Sequence[str] | None = None
    asked, seen = 0.0, time.monotonic()
    while not is_over.wait(_WATCH_S):
        cause = ""
        if _is_gone(daemons.gcs):
            cause = "Ray's control service (gcs_server) has ended"
        else:
            if nodes is None or time.monotonic() - asked > _ASK_S or all(map(_is_gone, nodes)):
                asked = time.monotonic()
                with suppress(Exception):  # any error of Ray: the next check is soon
                    nodes = daemons.nodes()
            if nodes is not None and all(map(_is_gone, nodes)):
                cause = "Ray has lost its last node"
        if not cause:
            seen = time.monotonic()
        elif time.monotonic() - seen > daemons.patience_s:
            lost(cause)
            return


def _ends(address: str) -> bool:
    """Return whether nothing listens at an address, now or within the grace period."""
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        if _is_gone(address):
            return True
        time.sleep(_PAUSE_S)
    return False


def _is_gone(address: str) -> bool:
    """Return whether a machine refuses connections; one that is busy or far away does not answer instead."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _GRACE_S).close()
    except OSError as error:
        return isinstance(error, ConnectionRefusedError)
    return False
