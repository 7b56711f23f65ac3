"""A real study, while it runs, in everything that shows it: the board, MLflow's pages, Ray's dashboard, an export."""

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from launch.testbed.processes import started
from pcl.presentation.numbers import number
from pcl.studies.cluster.session import DASHBOARD
from tests.support.board_process import (
    IS_READY,
    ROWS,
    Board,
    board,
    cells,
    choose_state,
    column,
    compare_rows,
    exported,
    open_study,
)  # fmt: skip
from tests.support.browser import CHROMIUM, Browser, browser
from tests.support.services import BASE, Grid, Home, Records, home, wait_for

EXPECTED_SECONDS = 140
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)"),
]

# One trial that is done at once, one that fails, and one that runs for as long as the test does.
CELLS = {
    "short": {"training.n_batches": 8},
    "broken": {"training.n_batches": 8, "training.lr": 1e30},
    "long": {"training.n_batches": 40_000},
}
CAUSE = "the encoder returns NaN at batch 4"
STATES = f"{ROWS}.map((row) => row.dataset.state).join()"


@dataclass
class Watched:
    """A study and what shows it."""

    place: Home
    grid: Grid
    ray: str
    board: Board
    tab: Browser

    def click(self, selector: str, text: str = "") -> None:
        """The first such element that has the text, as soon as it is there."""
        self.tab.click(
            f"[...document.querySelectorAll({selector!r})].find((one) => one.textContent.includes({text!r}))"
        )

    def shows(self, *texts: str) -> None:
        """Wait until all are to be read."""
        read = " && ".join(f"document.body.innerText.includes({text!r})" for text in texts)
        self.tab.wait(f"document.body !== null && {read}")


def test_a_running_study_in_all_that_shows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test of many steps: a study takes longer to start than all of them."""
    monkeypatch.delenv(DASHBOARD)
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # a user would paste the token into the dashboard
    with home() as place:
        space = place.variants("watched", "cell", CELLS, {**BASE, "training.eval_every": 4})
        words = ["--space", space, "--scale", "smoke", "--name", "watched", "--cpus", "2", "--storage", place.storage]
        own = {**os.environ, "RAY_TMPDIR": str(place.path)}
        grid = started([sys.executable, "launch/grid.py", *words], place.path / "1.out", own)  # Ray shows its words
        wait_for(lambda: "Ray dashboard:" in grid.said or grid.process.poll() is not None, "Ray is there")
        (ray,) = re.findall(r"Ray dashboard: (\S+)", grid.said)
        with board(place.storage, "--ray", ray) as ui, browser() as tab:
            watched = Watched(place, grid, ray, ui, tab)
            check_the_board_follows_it(watched)
            check_rays_dashboard_has_its_actor(watched)
            check_mlflow_lists_and_compares_its_runs(watched)
            check_an_export_of_it_opens_offline(watched, tmp_path / "site")
            check_its_end_is_seen_without_a_reload(watched)


def check_the_board_follows_it(watched: Watched) -> None:
    tab = watched.tab
    tab.open(watched.board.address)
    open_study(tab, "watched")
    tab.run("window.isTheSame = true")
    tab.wait(f"{STATES} === 'finished,failed,running'")
    assert tab.run("window.isTheSame") is True
    assert column(tab, "cell") == ["short", "broken", "long"]
    assert tab.run("document.querySelector('h1 .state').textContent") == "running"
    (finished,) = [
        run for run in Records(watched.place.storage, "watched").runs("trial") if run.info.status == "FINISHED"
    ]
    assert column(tab, "κ rank ↑")[0] == number(finished.data.metrics["objective"])
    assert CAUSE in tab.run("document.querySelector('#failures').textContent")
    drawn = "document.querySelector('#curves .line.running path')?.getAttribute('d')"
    tab.wait(f"{drawn} !== undefined")  # a trial is listed as soon as it starts, drawn once it has reported
    before = tab.run(drawn)
    tab.wait(f"{drawn} !== {before!r}")  # the curve grows
    choose_state(tab, "failed")
    assert column(tab, "cell") == ["broken"]
    choose_state(tab, "")
    compare_rows(tab, 0, 2)
    assert ["training.n_batches", "8", "40000"] in cells(tab, "setting-differences")
    assert tab.said == []


def check_rays_dashboard_has_its_actor(watched: Watched) -> None:
    tab = watched.tab
    tab.open(watched.board.address)
    watched.click("header nav a.out", "Ray")
    tab.wait(f"location.href.startsWith({watched.ray!r}) && document.title === 'Ray Dashboard'")
    watched.click("a", "Jobs")
    watched.shows("launch/grid.py", "--name watched", "RUNNING")
    watched.click("a", "Actors")
    watched.shows("ImplicitFunc", "run_jobs", "ALIVE")


def check_mlflow_lists_and_compares_its_runs(watched: Watched) -> None:
    tab, records = watched.tab, Records(watched.place.storage, "watched")
    parent = records.parent().info
    trials = {run.data.tags["mlflow.runName"]: run.info.run_id for run in records.runs("trial")}
    assert set(trials) == {f"cell={name}" for name in CELLS}
    tab.open(watched.board.address)
    watched.click("header nav a.out", "MLflow")  # which the page has once the server answers
    tab.wait(f"location.href.startsWith({watched.board.mlflow!r})")
    tab.open(f"{watched.board.mlflow}/#/experiments/{parent.experiment_id}/runs?workflowType=machine_learning")
    watched.click(f'[row-id="{parent.run_id}"] [col-id*="Run Name"] button')  # unfolds its trials
    for name in ("cell=short", "cell=long"):
        watched.click(f'[row-id="{trials[name]}"] input.ag-checkbox-input')
    watched.click("button:not([disabled])", "Compare")  # which is of no use before two are chosen
    tab.wait("location.hash.startsWith('#/compare-runs')")
    watched.shows("cell=short", "cell=long", "training.n_batches", "40000")


def check_an_export_of_it_opens_offline(watched: Watched, site: Path) -> None:
    tab = watched.tab
    exported(watched.place.storage, site)
    with tab.offline():
        tab.open((site / "index.html").as_uri())
        tab.asked.clear()
        tab.said.clear()
        open_study(tab, "watched")
        assert column(tab, "State") == ["finished", "failed", "running"]
        compare_rows(tab, 0, 1)
        assert cells(tab, "setting-differences") == [["training.lr", "0.0001", "1e+30"]]
        assert tab.said == []
    assert all(address.startswith(("file://", "about:")) for address in tab.asked)


def check_its_end_is_seen_without_a_reload(watched: Watched) -> None:
    tab = watched.tab
    tab.open(watched.board.address)
    open_study(tab, "watched")
    tab.run("window.isTheSame = true")
    watched.grid.interrupt()
    is_stopped = "document.querySelector('h1 .state').textContent === 'stopped'"
    tab.wait(f"{is_stopped} && {IS_READY} && {STATES} === 'finished,failed,stopped'")
    assert tab.run("window.isTheSame") is True
    watched.grid.ended(130)
