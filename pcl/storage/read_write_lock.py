"""A reader-writer lock."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class ReadWriteLock:
    """Many readers or one writer; a waiting writer blocks new readers.

    Example:
        >>> lock = ReadWriteLock()
        >>> with lock.reading(), lock.reading():
        ...     pass
        >>> with lock.writing():
        ...     pass
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_readers, self._n_waiting, self._is_writing = 0, 0, False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock together with other readers; not reentrant, as a writer may wait in between."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_writing and not self._n_waiting)
            self._n_readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_readers -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock alone."""
        with self._changed:
            self._n_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._is_writing and not self._n_readers)
                self._is_writing = True
            finally:
                self._n_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()
