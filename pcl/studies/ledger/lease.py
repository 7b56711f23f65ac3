"""Heartbeat lease on a study in a store that has no locks: a file with a holder and a counter.

Whoever wants the study looks whether the number still goes up, which needs no clocks that agree. One that has not for a
while is of a driver that has died. What this cannot do: a driver that is cut off from the store for longer than that
believes for a moment more that it has the study. It learns better at its next beat and stops; until then, the owners of
the trials' folders (see `pcl.studies.ledger.folders`) keep their files apart.
"""

import os
import platform
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from pcl.storage.files import write_text
from pcl.storage.mirror import Mirrored
from pcl.studies.ledger.folders import LEASE, StudyFolder

BEAT_S = 3.0
STALE_S = 15.0  # without a beat, a driver has died
_SETTLE_S = 1.0  # in which two that have come at once see each other
_CLOCK = ".clock"  # a file that is written to learn what time it is there


@contextmanager
def leased(folder: StudyFolder, on_lost: Callable[[], None]) -> Iterator[None]:
    """Hold the lease of a study in a store; a study in a folder needs none.

    `on_lost` is called, in a thread of its own, where another process has taken the study over.

    Raises:
        ValueError: If another process works on it.
    """
    mirror = folder.mirror
    if not isinstance(mirror, Mirrored):
        yield
        return
    lease = _Lease(folder, mirror)
    lease.take()
    is_done = threading.Event()
    thread = threading.Thread(target=lease.keep, args=(is_done, on_lost), name="pcl-lease", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
        with suppress(OSError):  # it goes stale
            lease.give_back()


def is_leased(folder: StudyFolder) -> bool:
    """Return whether a driver somewhere works on a study in a store; False of one in a folder."""
    mirror = folder.mirror
    return isinstance(mirror, Mirrored) and _Lease(folder, mirror).is_held()


class _Lease:
    def __init__(self, folder: StudyFolder, mirror: Mirrored) -> None:
        self._folder, self._mirror = folder, mirror
        self._token, self._n_beats = f"{platform.node()} {os.getpid()} {uuid.uuid4().hex}", 0

    def is_held(self) -> bool:
        return bool(self._read()) and self._age_s() < STALE_S

    def take(self) -> None:
        before = self._read()
        if before and self._age_s() < STALE_S:
            self._wait(before)
        self._beat()
        time.sleep(_SETTLE_S)
        if not self._is_ours():
            self._refuse(self._read())

    def keep(self, is_done: threading.Event, on_lost: Callable[[], None]) -> None:
        while not is_done.wait(BEAT_S):
            with suppress(OSError):  # the store is away; if another has seen it before, the next beat tells
                if not self._is_ours():
                    on_lost()
                    return
                self._beat()

    def give_back(self) -> None:
        """Release the lease; the file stays, as its time says when the study was last worked on."""
        if self._is_ours():
            self._write("")

    def _wait(self, before: str) -> None:
        """Wait until a lease has gone stale; one that is renewed meanwhile is held by another."""
        deadline = time.monotonic() + STALE_S
        while time.monotonic() < deadline:
            time.sleep(1.0)
            now = self._read()
            if not now:
                return
            if now != before:
                self._refuse(now)

    def _refuse(self, holder: str) -> None:
        host, pid, *_ = holder.split() if holder else ("unknown", "unknown")
        raise ValueError(
            f"Another process (of {host}, number {pid}) is at work on the study {self._folder.name!r}; wait for it."
        )

    def _age_s(self) -> float:
        """Return the seconds since the last heartbeat, by the store's own clock."""
        write_text(self._folder.path / _CLOCK, "")
        self._mirror.push(_CLOCK)
        age_s = self._mirror.time_of(_CLOCK) - self._mirror.time_of(LEASE)
        self._mirror.delete(_CLOCK)
        (self._folder.path / _CLOCK).unlink(missing_ok=True)
        return age_s

    def _is_ours(self) -> bool:
        return self._read().startswith(self._token)

    def _beat(self) -> None:
        self._n_beats += 1
        self._write(f"{self._token} {self._n_beats}")

    def _read(self) -> str:
        self._mirror.pull(LEASE)
        path = self._folder.path / LEASE
        return path.read_text() if path.exists() else ""

    def _write(self, text: str) -> None:
        write_text(self._folder.path / LEASE, text)
        self._mirror.push(LEASE)


def keep_outputs(folder: StudyFolder, say: Callable[[str], None]) -> None:
    """Put what a study leaves beside its trials into its store, if it is in one."""
    if folder.mirror.uri:
        folder.push()
        say(f"kept in {folder.mirror.uri}")
