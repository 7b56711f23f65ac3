"""Ray that ends under a study: SIGTERM to a process group reaches the daemons that Ray has started in it, too.

They end within a tenth of a second. Whoever asks them for something afterwards waits in Ray's own code, which no signal
interrupts, until Ray ends the process after a minute. So nobody asks: the driver leaves Tune where it stands, records
what there is, and ends without Ray's farewell. The workers follow it.
"""

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_GRACE_S = 2.0  # how long daemons that got the same signal may take to end; measured: 0.05 s on two busy cores
_PAUSE_S = 0.05
# What brought a driver out of Tune. It is kept because its frames have Tune's objects, which ask Ray to free what they
# hold when they are collected.
_kept: list[BaseException] = []


class Leaving:
    """Brings a driver out of Tune where SIGTERM has ended Ray as well."""

    def __init__(self) -> None:
        self._daemon = ""
        self._is_told = False

    @contextmanager
    def without(self, daemon: str) -> Iterator[None]:
        """A context that `look` leaves where there is no more daemon at an address."""
        self._daemon = daemon
        try:
            yield
        except KeyboardInterrupt as error:
            if not self._is_told:
                raise
            _kept.append(error)
        finally:
            self._daemon = ""

    def look(self) -> None:
        """Leave the context, where there is one and the daemon ends; to be called in the main thread, by a handler."""
        if self._daemon and _ends(self._daemon):
            self._is_told = True
            raise KeyboardInterrupt  # the one exception that Ray's own code lets through


def is_lost() -> bool:
    """Whether nothing must be asked of Ray any more, not even to shut down."""
    return bool(_kept)


def end_process(code: int) -> NoReturn:
    """Exit at once: on an orderly way out Ray would be asked."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _ends(address: str) -> bool:
    """Whether nobody listens at an address, now or soon."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host.strip("[]"), int(port)), _GRACE_S).close()
        except ConnectionRefusedError:
            return True
        except OSError:  # busy or far away, which is not the same
            pass
        time.sleep(_PAUSE_S)
    return False
