"""Heartbeat lease on a study in a store that has no locks: a file with a holder and a counter.

A process that wants the study watches whether the counter still rises, so clocks need not agree. If it has not risen
for a while, its driver has died. A limitation: a driver that is cut off from the store for longer than that still
believes for a moment that it holds the study. It notices at its next heartbeat and stops; until then, the owner files
of the trials' folders (see `pcl.studies.ledger.folders`) keep the two drivers' writes apart.
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
STALE_S = 15.0  # without a heartbeat for this long, a driver counts as dead
_SETTLE_S = 1.0  # in which two processes that take it at once see each other
_CLOCK = ".clock"  # written to learn the store's time


@contextmanager
def leased(folder: StudyFolder, on_lost: Callable[[], None]) -> Iterator[None]:
    """Hold the lease of a study in a store; a study in a folder needs none.

    `on_lost` is called, in a thread of its own, if another process has taken over the study.

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
    """Return whether a driver somewhere works on a study in a store; False for one in a folder."""
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
            with suppress(OSError):  # the store is unreachable; the next beat tells whether another took over
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
    """Upload the study's own files, outside its trials' folders, if it is in a store."""
    if folder.mirror.uri:
        folder.push()
        say(f"kept in {folder.mirror.uri}")
