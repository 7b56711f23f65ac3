"""Figures of a study: the axes that they choose."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pcl.studies.report.figures import scatter


@pytest.mark.parametrize(
    ("true", "predicted", "scale"),
    [
        ([16.0, 32.0], [15.0, 40.0], "linear"),
        ([16.0, 32.0], [400.0, 4154.0], "log"),  # the predictions alone span decades
        ([1.0, 90.0], [2.0, 70.0], "log"),
        ([-1.0, 1.0], [-0.9, 40.0], "linear"),  # cosines have no logarithm
    ],
)
def test_axes_are_logarithmic_where_values_span_decades(
    true: list[float], predicted: list[float], scale: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, str]] = []
    shown = lambda figure, *_, **__: found.append((figure.axes[0].get_xscale(), figure.axes[0].get_yscale()))  # noqa: E731
    monkeypatch.setattr(Figure, "savefig", shown)
    scatter(true, predicted, "kappa", Path("kappa.png"))
    assert found == [(scale, scale)]
