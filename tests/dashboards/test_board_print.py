"""What has room on a page: nothing is cut off, on a screen or on paper, on which there is dark ink on white."""

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dashboards.board import site
from dashboards.board.html.frame import PageContext
from dashboards.board.pages.ablation import ablation_page
from dashboards.board.pages.scoreboard import scoreboard_page
from dashboards.board.pages.study import study_page
from dashboards.board.store.records import Run, Study, Trial
from dashboards.paper.formats import Sheet, page
from pcl.studies.paper.comparison import Line
from pcl.studies.paper.published import published_tables
from pcl.studies.tracking.tags import RunState
from tests.dashboards.test_board_marks import trial_of
from tests.support.board_pages import Page
from tests.support.browser import CHROMIUM, Browser, browser

A4, LETTER = 718, 740  # pixels between Chromium's margins
OBJECTIVE = "eval/kappa_rank_corr"
BEYOND = (
    "[...document.querySelectorAll('main *, table *')].filter((e) => e.getBoundingClientRect().width > 2 "
    "&& e.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map((e) => e.textContent)"
)


def study_of(n_settings: int, n_trials: int = 8) -> Study:
    """Trials that vary so many settings."""
    study = Study(Run("a" * 32, "1", "s", RunState.FINISHED, 1, 2, {"pcl.objective": OBJECTIVE}))
    drawn = [random.Random(i).choices(range(5), k=n_trials) for i in range(n_settings)]
    for index in range(n_trials):
        run = Run(f"{index:032x}", "1", f"trial {index}", RunState.FINISHED, index, 2, {"pcl.stage": "grid"})
        run.params = {f"training.setting_{i}": f"value_{values[index]}" for i, values in enumerate(drawn)}
        run.metrics = {"objective": index / 10, "objective_se": 0.01} | dict.fromkeys(
            (OBJECTIVE, "eval/kappa_mae", "eval/mu_rank_corr", "eval/mu_mae"), index / 10)  # fmt: skip
        study.trials.append(Trial(run))
    return study


def test_many_settings_share_a_cell_on_paper() -> None:
    around = PageContext(is_live=False)
    many = Page(study_page(study_of(20), {}, around))
    classes = [attrs.get("class") or "" for tag, attrs in many.tags if tag == "th" and attrs.get("scope") == "col"]
    assert "only-print" in classes
    row = many.rows("trials")[0]
    assert row["What was varied"].count("=value_") == 20
    assert row["What was varied"].startswith("setting_0=value_")
    assert "only-print" not in study_page(study_of(1), {}, around)


@pytest.fixture(scope="module")
def tab() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed (Debian: apt install chromium)")
    with browser() as found:
        yield found


def written(folder: Path, page: str) -> Path:
    """A page of the board as a file, beside what all pages need."""
    shutil.copytree(Path(site.__file__).with_name("static"), folder, dirs_exist_ok=True)
    (folder / "page.html").write_text(page)
    return folder / "page.html"


def on_paper(tab: Browser, file: Path, width: int) -> None:
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=True)
    dark = [{"name": "prefers-color-scheme", "value": "dark"}]
    tab.call("Emulation.setEmulatedMedia", media="print", features=dark)
    tab.open(file.as_uri())
    assert tab.run("matchMedia('print').matches && matchMedia('(prefers-color-scheme: dark)').matches")


def inks(tab: Browser) -> list[int]:
    """The brightest part of the ink's colour, and the darkest of the paper's."""
    of = "getComputedStyle(document.body).{}.match(/\\d+/g).slice(0, 3).map(Number)"
    return [max(tab.run(of.format("color"))), min(tab.run(of.format("backgroundColor")))]


def test_the_scoreboard_has_room_for_its_words(tab: Browser, tmp_path: Path) -> None:
    (elk,) = (row for table in published_tables() for row in table.rows if row.name == "ELK" and row.task == "toy")
    trials = [
        trial_of(elk, scale, {4: -1.23e14, 5: 9.87e14, 6: -4.56e13}, causes)
        for scale, causes in (("paper", {}), ("quick", {4: "a" * 60}), ("smoke", dict.fromkeys((4, 5, 6), "b" * 60)))
    ]
    file = written(tmp_path, scoreboard_page(trials, (4, 5, 6), PageContext(is_live=False)))
    tab.call("Emulation.setEmulatedMedia", media="screen", features=[])
    cut = "[...document.querySelectorAll('.wide td, .wide th')].filter((e) => e.scrollWidth > e.clientWidth + 1)"
    for width in (1200, 900):
        tab.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
        tab.open(file.as_uri())
        words = tab.run("document.body.textContent")
        assert all(word in words for word in ("e+14 ±", "smoke", "b" * 60, "not run"))
        assert tab.run(f"{cut}.map((e) => e.textContent)") == []


@pytest.mark.parametrize("width", [A4, LETTER])
def test_a_study_of_twenty_settings_can_be_read_on_paper(tab: Browser, tmp_path: Path, width: int) -> None:
    on_paper(tab, written(tmp_path, study_page(study_of(20), {}, PageContext(is_live=False))), width)
    assert tab.run(BEYOND) == []
    assert tab.run("document.documentElement.scrollWidth") <= width
    shown = "[...document.querySelectorAll('#trials thead th')].filter((e) => e.offsetWidth).map((e) => e.textContent)"
    assert tab.run(shown) == [
        "Rank", "State", "What was varied", "κ rank ↑", "κ MAE ↓", "μ rank ↑", "μ MAE ↓", "seeds", "time", "Record",
    ]  # fmt: skip
    assert tab.run("document.querySelector('#trials tbody tr').offsetHeight") < 160
    ink, paper = inks(tab)
    assert ink < 80
    assert paper == 255


def test_folded_stages_are_printed(tab: Browser, tmp_path: Path) -> None:
    study = study_of(1)
    for trial, stage in zip(study.trials, ["grid"] * 3 + ["more"] * 3 + ["report"] * 2, strict=True):
        trial.run.tags.update({"pcl.stage": stage, "pcl.seed": "1"})
    file = written(tmp_path, ablation_page(study, PageContext(is_live=False)))
    shown = "[...document.querySelectorAll('.stage table')].map((e) => e.checkVisibility() && e.offsetHeight > 0)"
    on_paper(tab, file, A4)
    assert tab.run("[...document.querySelectorAll('.stage')].map((e) => e.open)") == [True, False, False]
    assert set(tab.run(shown)) == {True}
    assert tab.run(BEYOND) == []
    tab.call("Emulation.setEmulatedMedia", media="screen", features=[])
    assert set(tab.run(shown)) == {True, False}


@pytest.mark.parametrize("width", [A4, LETTER])
def test_sheets_are_printed_dark_on_white(tab: Browser, tmp_path: Path, width: int) -> None:
    lines = [Line("MCInfoNCE, CIFAR-10H", "annotator entropy", "0.33±0.01", f"0.148±0.172 [{'smoke, ' * 9}]", "5",
                  "+12.3 [smoke]", "no number printed [smoke]")] * 3  # fmt: skip
    (tmp_path / "sheet.html").write_text(page("Sheets", [Sheet("tab:a", "A table", "Ours.", lines)]))
    on_paper(tab, tmp_path / "sheet.html", width)
    ink, paper = inks(tab)
    assert ink < 80
    assert paper == 255
    assert tab.run(BEYOND) == []
