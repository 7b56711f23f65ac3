"""How long the pages of a study of 5,000 trials take in a headless Chromium: `python -m tests.support.time_board`."""

import argparse
import os
import tempfile
import time
from pathlib import Path

from tests.support.board_process import IS_READY, board
from tests.support.board_store import Writer, write_many
from tests.support.browser import browser

_NAME = f"study-{0:08x}{'f' * 24}.html"
_SETTLE_S = 20.0  # MLflow's server, which starts beside the board, takes a core for so long


def main() -> None:
    parser = argparse.ArgumentParser(prog="time_board", description=__doc__)
    parser.add_argument("--trials", type=int, default=5000)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        Writer(folder).study("small", [], {}, 0.0)
        write_many(folder / "mlflow.db", n_studies=1, n_trials=arguments.trials)
        for _ in range(arguments.repeats):
            told = "  ".join(f"{what} {seconds:.2f} s" for what, seconds in _times(folder).items())
            print(f"{told}  (load {os.getloadavg()[0]:.1f})", flush=True)


def _times(folder: Path) -> dict[str, float]:
    """Seconds until a page can be used, of a board that has just been started."""
    found = {}
    with board(folder) as ui, browser() as tab:
        time.sleep(_SETTLE_S)
        # A study's page first: after the overview it would be made already.
        for what, name in (("study", _NAME), ("again", _NAME), ("overview", "")):
            tab.open(ui.address + name)
            tab.wait(IS_READY)
            found[what] = tab.run("Number(document.documentElement.dataset.ready)") / 1000
    with board(folder) as ui, browser() as tab:
        time.sleep(_SETTLE_S)
        tab.open(ui.address)
        time.sleep(2.0)  # as long as it takes to find the link
        tab.open(ui.address + _NAME)
        tab.wait(IS_READY)
        found["study after the overview"] = tab.run("Number(document.documentElement.dataset.ready)") / 1000
    return found


if __name__ == "__main__":
    main()
