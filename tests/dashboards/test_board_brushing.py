"""Brushed axes and many chosen runs in a headless Chromium."""

import pytest

from tests.support.board_pages import Stored
from tests.support.board_process import ROWS, column, served
from tests.support.browser import CHROMIUM, browser

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed (Debian: apt install chromium)")

KEPT = "[...document.querySelectorAll('#parallel .line:not(.off)')].map((line) => line.dataset.run)"


def test_brushed_axes_filter_lines_and_table(stored: Stored) -> None:
    with served(stored.site) as server, browser() as tab:
        tab.open(f"http://127.0.0.1:{server.server_address[1]}/study-{stored.runs['whole']}.html")
        tab.wait("document.querySelector('.brushed') !== null")
        tab.run("document.querySelector('#parallel .goal .brush').scrollIntoView({ block: 'center' })")
        box = "document.querySelector('#parallel .goal .brush').getBoundingClientRect()"
        x, top, height = (tab.run(f"{box}.{side}") for side in ("x", "top", "height"))
        low = top + height / 4
        for kind, y in (("mousePressed", top + 1), ("mouseMoved", low), ("mouseReleased", low)):
            tab.call("Input.dispatchMouseEvent", type=kind, x=x + 8, y=y, button="left", buttons=1, clickCount=1)
        kept = tab.run(KEPT)
        drawn = tab.run("[...document.querySelectorAll('#parallel .line')].map((line) => line.dataset.run)")
        assert 0 < len(kept) < 5
        shown = tab.run(f"{ROWS}.map((row) => row.dataset.run)")
        assert sorted(set(shown) & set(drawn)) == sorted(kept)
        assert len(set(shown) - set(drawn)) == 1  # the trial that failed has no line, and its row stays
        # As after news that moved all axes, and took one away that was brushed: what is kept stays the same.
        tab.run("""(() => {
          charts.brushes.set("gone", [0, 0.1]);
          const svg = document.querySelector("svg.parallel");
          const [fresh, far] = [svg.cloneNode(true), 31];
          for (const path of fresh.querySelectorAll("g.line path")) {
            const moved = (_, letter, x) => `${letter}${Number(x) + far}`;
            path.setAttribute("d", path.getAttribute("d").replace(/([ML])([\\d.]+)/g, moved));
          }
          for (const rect of fresh.querySelectorAll("rect.brush")) rect.dataset.at = Number(rect.dataset.at) + far;
          for (const told of svg.parentElement.querySelectorAll(".brushed")) told.remove();
          svg.replaceWith(fresh);
          charts.begin(document);
        })()""")
        assert tab.run(KEPT) == kept
        assert tab.run("[...charts.brushes.keys()].length") == 1
        tab.click("document.querySelector('.brushed button')")
        assert len(column(tab, "Rank")) == 6
        assert tab.said == []


def test_more_runs_than_letters_are_said_to_be_left_out(stored: Stored) -> None:
    with served(stored.site) as server, browser() as tab:
        address, study = f"http://127.0.0.1:{server.server_address[1]}/", stored.runs["whole"]
        tab.open(f"{address}study-{study}.html")
        tab.wait("document.querySelector('.brushed') !== null")
        choose = "board.choose(document.getElementById('trials'), {{ type: 'checkbox', value: 'r{}', checked: true }})"
        for number in range(26):
            tab.run(choose.format(number))
        told = "document.querySelector('.chosen').textContent"
        assert "at most" not in tab.run(told)
        tab.run(choose.format(26))
        assert "at most 26" in tab.run(told)
        tab.open(f"{address}compare.html#{','.join([f'{study}/r'] * 27)}")
        tab.wait("document.querySelectorAll('[data-side]').length === 26")
        assert tab.run("document.getElementById('left-out').textContent") == "The first 26 of 27 runs are compared."
        assert tab.run("document.getElementById('add').disabled")
