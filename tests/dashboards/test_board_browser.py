"""The board as people use it: `launch/board.py` and its export, clicked through in a headless Chromium."""

import re
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch.testbed.processes import DEADLINE_S, command_of, descendants
from pcl.presentation.numbers import MINUS, MISSING
from pcl.studies.ledger.folders import Result, Status
from tests.support.board_pages import Stored
from tests.support.board_process import (
    ROWS,
    Board,
    board,
    cells,
    choose_state,
    choose_study,
    column,
    compare_rows,
    exported,
    filter_words,
    heading,
    open_study,
    served,
)  # fmt: skip
from tests.support.board_store import Writer, score, tags, write_many, write_studies
from tests.support.browser import CHROMIUM, Browser, browser
from tests.support.services import wait_for

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")

EXPECTED_SECONDS = 130
N_MANY = 256  # trials: more than a page has as rows


@dataclass
class Shown:
    """A board of a store of studies."""

    folder: Path
    runs: dict[str, str]
    address: str


@dataclass
class Started(Shown):
    """One of a process of its own."""

    board: Board


def test_pages_in_a_browser(stored: Stored) -> None:
    """Serve in this process: what needs `launch/board.py` and MLflow's pages takes minutes."""
    with served(stored.site) as server, browser() as tab:
        shown = Shown(stored.folder, stored.runs, f"http://127.0.0.1:{server.server_address[1]}/")
        check_sorting_filtering_and_comparing(shown, tab)
        check_markup_in_names_stays_text(shown, tab)


@pytest.mark.slow
def test_the_board_in_a_browser(tmp_path: Path) -> None:
    """One test of many steps: what they share takes longer to start than they take."""
    runs = write_studies(tmp_path)
    runs["empty"] = Writer(tmp_path).tracker.open_study("empty", tags("toy_space"))
    write_many(tmp_path / "mlflow.db", n_studies=1, n_trials=N_MANY)
    with board(tmp_path) as process, browser() as tab:
        ui = Started(tmp_path, runs, process.address, process)
        check_a_long_table_is_whole(ui, tab)
        check_runs_that_are_not_there_are_named(ui, tab)
        check_an_empty_study_leaves_no_comparison(ui, tab)
        check_any_number_of_runs_is_compared(ui, tab)
        check_a_contour_is_chosen(ui, tab)
        check_news_come_without_a_reload(ui, tab)
        check_an_export_opens_from_disk_with_the_network_off(ui, tab, tmp_path / "site")
        check_the_deep_link_leads_to_the_run_in_mlflow(ui, tab)
        check_links_open_pages_of_trainings_in_a_fresh_browser(ui)
        check_ctrl_c_stops_what_was_started(ui)


def check_sorting_filtering_and_comparing(ui: Shown, tab: Browser) -> None:
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


def check_a_long_table_is_whole(ui: Started, tab: Browser) -> None:
    """Of many rows only the first are in the page; those that are made are as they are."""
    tab.open(ui.address)
    open_study(tab, "study_0")
    whole = [str(lr) for lr in range(N_MANY)]
    assert column(tab, "lr") == whole[:-201:-1]
    assert "the first 200 shown" in tab.run("document.querySelector('.count').textContent")
    tab.run(f"{heading('lr')}.click()")
    assert column(tab, "lr") == whole[:200]
    assert column(tab, "Rank")[0] == str(N_MANY)
    shape = "(row) => row.innerHTML.replace(/[0-9a-f]{32}|[0-9.]+/g, '')"
    made, first = tab.run(f"[{ROWS}[20], {ROWS}[199]].map({shape})")  # at once: MLflow's links may come at any time
    assert made == first
    run = f"{0:08x}{0:024x}"
    assert tab.run(f"{ROWS}[0].dataset.run + {ROWS}[0].querySelector('input').value") == run + run
    assert tab.run(f"{ROWS}[0].className + {ROWS}[0].dataset.state") == "finished"
    filter_words(tab, f"0.{N_MANY - 100}")
    assert len(column(tab, "lr")) == 1
    filter_words(tab, "")
    tab.run("document.querySelector('.count button').click()")
    assert column(tab, "lr") == whole
    compare_rows(tab, 0, N_MANY - 1)
    assert cells(tab, "setting-differences") == [["training.lr", "0", str(N_MANY - 1)]]
    assert tab.said == []


def check_markup_in_names_stays_text(ui: Shown, tab: Browser) -> None:
    addresses = [f"{kind}-{ui.runs['nasty']}.html" for kind in ("study", "ablation", "winner")]
    for address in [*addresses, f"compare.html#{ui.runs['nasty']},{ui.runs['nasty']}", "compare.html#<script>"]:
        tab.open(ui.address + address)
        if "compare" in address:
            tab.wait("document.getElementById('told').textContent !== ''")
        assert tab.run("document.querySelectorAll('main script, main img').length") == 0
        assert tab.run("document.body.innerText.includes('<script>')")
        assert tab.run("document.title") != "taken"
    assert tab.said == []


def check_runs_that_are_not_there_are_named(ui: Started, tab: Browser) -> None:
    study = ui.runs["whole"]
    for asked, told in {
        "nope/nope,x": "Runs nope/nope and x are not there: choose others.",
        f"{study},{study}/y": f"Run {study}/y is not there: choose another.",
        "%E0%A4%A": "Run %E0%A4%A is not there: choose another.",
        f"{study},{ui.runs['empty']}": "The study empty has no trials yet: choose another.",
    }.items():
        tab.open(f"{ui.address}compare.html#{asked}")
        tab.wait(f"document.getElementById('told').textContent === {told!r}")
        assert tab.run("document.getElementById('differences').children.length") == 0
        assert tab.run("location.hash") == f"#{asked}"
    tab.run(f"location.hash = '#{study},nope'")
    tab.wait("document.getElementById('told').textContent === 'Run nope is not there: choose another.'")
    choose_study(tab, "B", study)
    tab.wait("document.querySelector('#metric-differences') !== null")
    assert "settings differ" in tab.run("document.getElementById('told').textContent")
    assert tab.said == []


def check_an_empty_study_leaves_no_comparison(ui: Started, tab: Browser) -> None:
    study, empty = ui.runs["whole"], ui.runs["empty"]
    for side, other in ("AB", "BA"):
        tab.open(f"{ui.address}compare.html#{study},{study}")
        tab.wait("document.querySelector('#metric-differences') !== null")
        choose_study(tab, side, empty)
        tab.wait("document.getElementById('told').textContent === 'The study empty has no trials yet: choose another.'")
        assert tab.run("document.getElementById('differences').children.length") == 0
        run = tab.run(f"document.getElementById('trial-{other}').value")
        assert tab.run("location.hash") == "#" + (f"{empty},{study}/{run}" if side == "A" else f"{study}/{run},{empty}")
        choose_study(tab, side, study)
        tab.wait("document.querySelector('#metric-differences') !== null")
    assert tab.said == []


def check_any_number_of_runs_is_compared(ui: Started, tab: Browser) -> None:
    tab.open(f"{ui.address}study-{ui.runs['whole']}.html")
    compare_rows(tab, 0, 1, 2)
    assert cells(tab, "setting-differences") == [["loss.n_samples", "5", "8", "16"]]
    assert {len(row) for row in cells(tab, "metric-differences")} == {4}
    tab.wait("document.querySelectorAll('#curves path').length === 3")
    tab.click("document.getElementById('add')")
    tab.wait("document.querySelectorAll('#curves path').length === 4")
    tab.click("document.getElementById('remove')")
    tab.wait("document.querySelectorAll('[data-side]').length === 3 && location.hash.split(',').length === 3")
    assert tab.said == []


def check_a_contour_is_chosen(ui: Started, tab: Browser) -> None:
    study = Writer(ui.folder).grid("crossed")
    for address in (f"parameters-{study}.html", f"parameters-{study}-eval-kappa_mae.html"):
        tab.open(f"{ui.address}{address}")
        tab.wait("document.querySelector('#contours select') !== null")
        shown = "[...document.querySelectorAll('#contours figure')].filter((figure) => !figure.hidden).length"
        assert tab.run(shown) == 3
        tab.run("document.querySelector('#contours select').selectedIndex = 2")
        tab.run("document.querySelector('#contours select').dispatchEvent(new Event('change'))")
        assert tab.run(shown) == 1
        tab.run("location.reload()")
        tab.wait(f"document.querySelector('#contours select')?.selectedIndex === 2 && {shown} === 1")
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
    tab.wait(f"{ROWS}.map((row) => row.dataset.state).join() === 'finished,running'")
    assert tab.run("window.isTheSame") is True


def check_the_deep_link_leads_to_the_run_in_mlflow(ui: Started, tab: Browser) -> None:
    study = f"{ui.address}study-{ui.runs['whole']}.html"

    def has_link() -> bool:
        with urllib.request.urlopen(study, timeout=DEADLINE_S) as answer:
            return f'href="{ui.board.mlflow}/#/experiments/' in answer.read().decode()

    wait_for(has_link, "the MLflow server answers")
    tab.open(study)
    tab.click("document.querySelector('#trials a.out')")
    tab.wait("location.hash.includes('/runs/') && document.body?.innerText.includes('n_samples=5')")
    assert tab.run("location.origin") == ui.board.mlflow


def check_links_open_pages_of_trainings_in_a_fresh_browser(ui: Started) -> None:
    """MLflow's pages for language models, which it shows to those who are new, have no list of runs."""
    study = f"{ui.address}study-{ui.runs['whole']}.html"
    of_trainings = "text.includes('Model registry') && !text.includes('Evaluation runs')"
    for selector, words in (
        ("header nav a.out", ["pcl/toy_space"]),
        ("#trials a.out", ["n_samples=5", "Parent run"]),
        (".facts a.out[aria-label]", ["whole", "Child runs"]),
        (".facts a.out:not([aria-label])", ["7 matching runs", "n_samples=5", "n_samples=32"]),
    ):
        with browser() as tab:
            tab.open(study)
            tab.click(f"document.querySelector({selector!r})")
            shows = " && ".join(f"text.includes({word!r})" for word in words)
            tab.wait(f"((text) => {shows} && {of_trainings})(document.body?.innerText ?? '')")
            assert tab.run("location.origin") == ui.board.mlflow
    with browser() as tab:
        tab.open(study)
        compare_rows(tab, 0, 1)
        tab.click("document.querySelector('#about-A a.out')")
        tab.wait(f"((text) => text.includes('Parent run') && {of_trainings})(document.body?.innerText ?? '')")


def check_an_export_opens_from_disk_with_the_network_off(ui: Started, tab: Browser, site: Path) -> None:
    assert re.search(r"index\.html and \d+ more files", exported(ui.folder, site))
    with tab.offline():
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
    assert tab.said == []
    assert all(address.startswith(("file://", "about:")) for address in tab.asked)


def check_ctrl_c_stops_what_was_started(ui: Started) -> None:
    began = descendants(ui.board.started.process.pid, [int(entry.name) for entry in Path("/proc").glob("[0-9]*")])
    assert len(began) > 2  # MLflow's server has started another process, which answers
    assert ui.board.end() == 130
    assert "Traceback" not in ui.board.said
    assert "stopped, and with it what it had started" in ui.board.said
    assert [text for pid in began if (text := command_of(pid))] == []
