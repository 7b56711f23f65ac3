"""A thread that does its work again and again while a context is open: for gauges, progress lines and watches."""

import threading
from collections.abc import Callable
from typing import Self


class Repeating:
    """A context in which a thread calls `work` every `pause_s` seconds; it ends with the context."""

    def __init__(self, work: Callable[[], None], pause_s: float, name: str) -> None:
        self._repeated, self._pause_s = work, pause_s
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        self._thread.join()

    def _repeat(self) -> None:
        while not self._is_done.wait(self._pause_s):
            self._repeated()
