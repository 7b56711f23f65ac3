"""Figures of a study: the axes that they choose, and what they show."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from pcl.studies.report.figures import reliability, scatter
from pcl.studies.report.predictions import LEVELS, Predictions
from pcl.training.run import Run
from tests.support.smoke import smoke


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


def test_the_reliability_of_a_checkpoint_agrees_with_its_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(smoke(task__n_eval=500), (4, 5))
    *_, report = run
    run.save(tmp_path / "run.pt")
    found = Predictions.read(tmp_path / "run.pt")
    assert found is not None
    assert found.covered is not None
    metrics, shares = report.by_seed[4], dict(zip(LEVELS, found.covered.tolist(), strict=True))
    assert [shares[level] for level in (0.5, 0.9, 0.95)] == pytest.approx(
        [metrics[f"eval/coverage_{percent}"] for percent in (50, 90, 95)]
    )
    drawn: list[list[list[float]]] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(_lines(figure)))
    reliability(LEVELS, found.covered.numpy(), "coverage", tmp_path / "coverage.png")
    assert drawn == [[[0.0, 1.0], pytest.approx(found.covered.tolist())]]


def test_spheres_of_different_dimensions_have_no_coverage(tmp_path: Path) -> None:
    run = Run(smoke(encoder__dim=5), (4,))
    run.save(tmp_path / "run.pt")
    found = Predictions.read(tmp_path / "run.pt")
    assert found is not None
    assert found.covered is None


def _lines(figure: Figure) -> list[list[float]]:
    return [[float(y) for y in line.get_ydata()] for line in figure.axes[0].lines]  # type: ignore[union-attr]
