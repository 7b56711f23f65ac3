"""A reader-writer lock for threads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Turns:
    """A reader-writer lock: many holders together, or one alone; a waiting lone holder blocks new shared ones.

    Example:
        >>> turns = Turns()
        >>> with turns.together(), turns.together():
        ...     pass
        >>> with turns.alone():
        ...     pass
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._n_together, self._n_waiting, self._is_alone = 0, 0, False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Hold the lock shared; a thread must not enter twice while another may want to be alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_alone and not self._n_waiting)
            self._n_together += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_together -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the lock exclusively."""
        with self._changed:
            self._n_waiting += 1
            try:
                self._changed.wait_for(lambda: not self._is_alone and not self._n_together)
                self._is_alone = True
            finally:
                self._n_waiting -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_alone = False
                self._changed.notify_all()
