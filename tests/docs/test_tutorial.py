"""The tutorial runs as it stands, and has its outputs."""

import json

import matplotlib
import pytest

from tests.support.notebooks import TUTORIAL, cells, results

EXPECTED_SECONDS = 50


def test_every_code_cell_but_the_first_shows_its_output() -> None:
    first, *others = cells()
    assert not first["outputs"]
    assert all(cell["outputs"] for cell in others)
    kinds = [kind for cell in others for output in cell["outputs"] for kind in output.get("data", {"text": ""})]
    assert {"text", "text/html", "image/png"} <= set(kinds)
    assert TUTORIAL.stat().st_size < 100_000
    assert "/tmp/" not in json.dumps(cells())


@pytest.mark.slow
def test_the_tutorial_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a minute of processor time: two trials in this process."""
    monkeypatch.setenv("MPLBACKEND", "Agg")
    matplotlib.use("Agg")
    found = list(results(["".join(cell["source"]) for cell in cells()]))
    frame, words, figure, posterior = found[1][1], found[2][0], found[3][1], found[4][0]
    assert len(frame) == 2  # type: ignore[arg-type]
    assert words.startswith("best constant ")
    assert hasattr(figure, "savefig")
    assert posterior.startswith("torch.Size([5, 10])")
