"""The board as people use it: `launch/ui.py` and its export, clicked through in a headless Chromium."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from dashboards.board.markup import MINUS, MISSING
from pcl.studies.ledger import Result, Status
from tests.board_store import Writer, score, tags, write_studies
from tests.browser import CHROMIUM, Browser, browser
from tests.services import free_port, wait_for

ROOT = Path(__file__).parent.parent

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")

ROWS = "[...document.querySelectorAll('#trials tbody.first tr')]"
IS_READY = "document.documentElement.dataset.ready !== undefined"


@dataclass
class Started:
    """A process of launch/ui.py with a store of four studies."""

    folder: Path
    runs: dict[str, str]
    process: subprocess.Popen[bytes]
    address: str
    mlflow: str


@contextlib.contextmanager
def started(folder: Path) -> Iterator[Started]:
    runs = write_studies(folder)
    ports = free_port(), free_port()
    options = ["--storage", str(folder), "--port", str(ports[0]), "--mlflow-port", str(ports[1])]
    log = folder / "ui.log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "launch/ui.py", *options], cwd=ROOT, stdout=file, stderr=file, start_new_session=True,
            # Where the tests run in a shell's background, Ctrl-C is ignored there and would be here.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509  no threads here
        )  # fmt: skip
    try:
        wait_for(lambda: "Ctrl-C" in log.read_text() or process.poll() is not None, "the board is up", 60)
        yield Started(folder, runs, process, f"http://127.0.0.1:{ports[0]}/", f"http://127.0.0.1:{ports[1]}")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(30)


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
    tab.run(f"[...document.querySelectorAll('#studies a')].find((link) => link.textContent === {name!r}).click()")
    tab.wait(f"document.title.startsWith({name!r}) && {IS_READY}")


def choose_state(tab: Browser, state: str) -> None:
    tab.run(f"document.querySelector('.tools select.state').value = {state!r}")
    tab.run("document.querySelector('.tools select.state').dispatchEvent(new Event('change'))")


def compare_rows(tab: Browser, *rows: int) -> None:
    """Choose two trials and follow the link that is offered."""
    for row in rows:
        tab.run(f"{ROWS}[{row}].querySelector('input').click()")
    tab.run("document.querySelector('a.chosen').click()")
    tab.wait("document.querySelector('#metric-differences') !== null")


def test_the_board_in_a_browser(tmp_path: Path) -> None:
    """One test of many steps: what they share takes longer to start than they take."""
    with started(tmp_path) as ui, browser() as tab:
        check_sorting_filtering_and_comparing(ui, tab)
        check_markup_in_names_stays_text(ui, tab)
        check_news_come_without_a_reload(ui, tab)
        check_an_export_opens_from_disk_with_the_network_off(ui, tab, tmp_path / "site")
        check_the_deep_link_leads_to_the_run_in_mlflow(ui, tab)
        check_ctrl_c_stops_what_was_started(ui)


def check_sorting_filtering_and_comparing(ui: Started, tab: Browser) -> None:
    tab.open(ui.address)
    open_study(tab, "whole")
    assert column(tab, "Rank") == ["1", "2", "3", "4", "5", MISSING]
    tab.run(f"{heading('n_samples')}.click()")
    assert column(tab, "n_samples") == ["1", "2", "5", "8", "16", "32"]
    tab.run(f"{heading('κ rank ↑')}.focus()")
    tab.press("Enter", 13)
    assert column(tab, "n_samples") == ["32", "5", "8", "16", "1", "2"]
    assert tab.run(f"{heading('κ rank ↑')}.parentElement.getAttribute('aria-sort')") == "descending"
    choose_state(tab, "failed")
    assert column(tab, "n_samples") == ["2"]
    assert "1 of 6 rows" in tab.run("document.querySelector('.count').textContent")
    choose_state(tab, "")
    compare_rows(tab, 0, 4)
    assert cells(tab, "setting-differences") == [["loss.n_samples", "32", "1"]]
    differences = {row[0]: row[3] for row in cells(tab, "metric-differences")}
    lost, whole = (score(0.9, 1) + score(0.9, 3)) / 2, sum(score(0.1, seed) for seed in (1, 2, 3)) / 3
    assert differences["κ rank ↑ (eval/kappa_rank_corr)"] == f"{whole - lost:.3f}".replace("-", MINUS)
    assert tab.said == []


def check_markup_in_names_stays_text(ui: Started, tab: Browser) -> None:
    addresses = [f"{kind}-{ui.runs['nasty']}.html" for kind in ("study", "ablation", "winner")]
    for address in [*addresses, f"compare.html#{ui.runs['nasty']}/x,{ui.runs['nasty']}/y"]:
        tab.open(ui.address + address)
        if "compare" in address:
            tab.wait("document.querySelector('#metric-differences') !== null")
        assert tab.run("document.querySelectorAll('main script, main img').length") == 0
        assert tab.run("document.body.innerText.includes('<script>')")
        assert tab.run("document.title") != "taken"
    assert tab.said == []


def check_news_come_without_a_reload(ui: Started, tab: Browser) -> None:
    tab.open(f"{ui.address}study-{ui.runs['running']}.html")
    tab.run("window.isTheSame = true")
    assert column(tab, "State") == ["running"]
    writer = Writer(ui.folder)
    writer.tracker.open_study("running", tags("toy_space"))
    folder = writer.trial(8, (1,), 0.6)
    folder.close(Result(Status.FINISHED))
    writer.tracker.sync(folder)
    tab.wait(f"{ROWS}.map((row) => row.dataset.state).join() === 'finished,running'", 30)
    assert tab.run("window.isTheSame") is True


def check_the_deep_link_leads_to_the_run_in_mlflow(ui: Started, tab: Browser) -> None:
    study = f"{ui.address}study-{ui.runs['whole']}.html"

    def has_link() -> bool:
        with urllib.request.urlopen(study, timeout=20) as answer:
            return f'href="{ui.mlflow}/#/experiments/' in answer.read().decode()

    wait_for(has_link, "the MLflow server answers", 90)
    tab.open(study)
    tab.run("document.querySelector('#trials a.out').click()")
    tab.wait("location.hash.includes('/runs/') && document.body?.innerText.includes('n_samples=5')", 60)
    assert tab.run("location.origin") == ui.mlflow


def check_an_export_opens_from_disk_with_the_network_off(ui: Started, tab: Browser, site: Path) -> None:
    command = [sys.executable, "launch/ui.py", "--storage", str(ui.folder), "--export", str(site)]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    assert re.search(r"index\.html and \d+ more files", said)
    limits = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    tab.call("Network.emulateNetworkConditions", offline=True, **limits)
    try:
        tab.open((site / "index.html").as_uri())
        tab.asked.clear()
        tab.said.clear()
        open_study(tab, "whole")
        tab.run(f"{heading('n_samples')}.click()")
        assert column(tab, "n_samples") == ["1", "2", "5", "8", "16", "32"]
        compare_rows(tab, 0, 2)
        assert cells(tab, "setting-differences") == [["loss.n_samples", "1", "5"]]
        tab.open((site / f"winner-{ui.runs['whole']}.html").as_uri())
        tab.wait("document.images.length === 1 && document.images[0].naturalWidth > 0")
    finally:
        tab.call("Network.emulateNetworkConditions", offline=False, **limits)
    assert tab.said == []
    assert all(address.startswith(("file://", "about:")) for address in tab.asked)


def check_ctrl_c_stops_what_was_started(ui: Started) -> None:
    ui.process.send_signal(signal.SIGINT)
    assert ui.process.wait(30) == 130
    said = (ui.folder / "ui.log").read_text()
    assert "Traceback" not in said
    assert "stopped, and with it what it had started" in said
    commands = {entry: _command(entry) for entry in Path("/proc").glob("[0-9]*") if int(entry.name) != os.getpid()}
    assert [text for text in commands.values() if "mlflow" in text and str(ui.folder) in text] == []


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""
