"""The board as users start it: a process of launch/board.py, and its tables as a browser has them."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.board.server import BoardServer
from dashboards.board.site import Site
from launch.testbed.processes import DEADLINE_S, ROOT, Started, started
from tests.support.browser import Browser
from tests.support.services import free_port, wait_for

ROWS = "[...document.querySelectorAll('#trials tbody.first tr')]"
IS_READY = "document.documentElement.dataset.ready !== undefined"


@dataclass
class Board:
    """One that runs.

    Attributes:
        started: Its process.
        address: Of its pages.
        mlflow: Of MLflow's, which answer later.
    """

    started: Started
    address: str
    mlflow: str

    @property
    def said(self) -> str:
        return self.started.said + self.started.errors

    def end(self) -> int:
        """Press Ctrl-C; returns the exit code."""
        self.started.process.send_signal(signal.SIGINT)
        return self.started.process.wait(DEADLINE_S)


@contextlib.contextmanager
def board(storage: Path, *options: str) -> Iterator[Board]:
    """Started, and ended unless it has been."""
    ports = free_port(), free_port()
    command = [sys.executable, "launch/board.py", "--storage", storage, "--port", str(ports[0]), "--mlflow-port",
               str(ports[1]), *options]  # fmt: skip
    process = started(command, storage / "ui.log", os.environ)
    found = Board(process, f"http://127.0.0.1:{ports[0]}/", f"http://127.0.0.1:{ports[1]}")
    try:
        wait_for(lambda: "Ctrl-C" in found.said or process.process.poll() is not None, "the board is up")
        yield found
    finally:
        if process.process.poll() is None:
            found.end()


@contextlib.contextmanager
def served(site: Site, **limits: Any) -> Iterator[BoardServer]:
    """A site's server in this process."""
    with BoardServer(site, "127.0.0.1", 0, "a store", **limits) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def exported(storage: Path, site: Path) -> str:
    """Write the board as files; returns what is said."""
    command = [sys.executable, "launch/board.py", "--storage", str(storage), "--export", str(site)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=True).stdout


def heading(name: str) -> str:
    """A script that finds the button above a column of the trials."""
    return f"[...document.querySelectorAll('#trials thead button')].find((button) => button.textContent === {name!r})"


def column(tab: Browser, name: str) -> list[str]:
    """What a column of the trials shows."""
    return list(tab.run(f"{ROWS}.map((row) => row.cells[{heading(name)}.parentElement.cellIndex].textContent)"))


def cells(tab: Browser, table: str) -> list[list[str]]:
    rows = f"[...document.querySelectorAll('#{table} tbody tr')]"
    return list(tab.run(f"{rows}.map((row) => [...row.cells].map((cell) => cell.textContent))"))


def open_study(tab: Browser, name: str) -> None:
    """From the overview, by its link."""
    tab.click(f"[...document.querySelectorAll('#studies a')].find((link) => link.textContent === {name!r})")
    tab.wait(f"document.title.startsWith({name!r}) && {IS_READY}")


def choose_state(tab: Browser, state: str) -> None:
    _enter(tab, ".tools select.state", state, "change")


def choose_study(tab: Browser, side: str, study: str) -> None:
    """Of a comparison."""
    _enter(tab, f"#study-{side}", study, "change")


def filter_words(tab: Browser, words: str) -> None:
    _enter(tab, ".tools input", words, "input")


def _enter(tab: Browser, selector: str, value: str, event: str) -> None:
    """In one step: news may put another element in its place between two."""
    tab.run(
        f"(() => {{ const found = document.querySelector({selector!r}); found.value = {value!r}; "
        f"found.dispatchEvent(new Event({event!r})); }})()"
    )


def compare_rows(tab: Browser, *rows: int) -> None:
    """Choose two trials and follow the link that is offered."""
    for row in rows:
        tab.run(f"{ROWS}[{row}].querySelector('input').click()")
    tab.click("document.querySelector('a.chosen')")
    tab.wait("document.querySelector('#metric-differences') !== null")
