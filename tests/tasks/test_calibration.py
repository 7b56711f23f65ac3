"""Where losses have their optimum in kappa when the truth is put in."""

import math

import pytest

from pcl.losses import HIB, Expectation, MCInfoNCE, NegativeWeight, PositiveWeight
from pcl.tasks import AcceptanceConstant, Negatives, PositiveRule, Smoothing, ToyTask, calibration_scan
from pcl.tasks.calibration import FACTORS, Calibration

K = 32
LOSSES = {
    "coded": MCInfoNCE.Config(n_samples=K, positive_weight=PositiveWeight.ONE),
    "written": MCInfoNCE.Config(n_samples=K),
    "hib coded": HIB.Config(
        n_samples=K, expectation=Expectation.MEAN_OF_LOGS, negative_weight=NegativeWeight.ONE_OVER_N_SQUARED
    ),
    "hib written": HIB.Config(n_samples=K),
    "hib written, a = 2, b = 1": HIB.Config(n_samples=K, a=2.0, b=1.0),
}


def is_close(found: float, known: float) -> bool:
    """Equal, or next to each other on the grid of factors; infinity only equals itself."""
    if math.isinf(found) or math.isinf(known):
        return found == known
    return abs(FACTORS.index(found) - FACTORS.index(known)) <= 1


@pytest.fixture(scope="module")
def released() -> ToyTask:
    constant = AcceptanceConstant.FITTED
    return ToyTask.Config(smoothing=Smoothing.RELEASED, acceptance_constant=constant, n_eval=50).build([1])


@pytest.fixture(scope="module")
def theorem() -> ToyTask:
    return ToyTask.Config(smoothing=Smoothing.RELEASED, positives=PositiveRule.VMF, n_eval=50).build([1])


@pytest.mark.parametrize(
    ("loss", "best"), [("coded", 1.0), ("written", 0.75), ("hib coded", math.inf), ("hib written", math.inf)]
)
def test_the_released_rule(released: ToyTask, loss: str, best: float) -> None:
    """The first row of the known table, to one step of the grid: neighbours are often within their errors."""
    scan = calibration_scan(released, LOSSES[loss].build(), n_anchors=384)
    assert is_close(scan.best, best)
    assert bool(scan.warning) == math.isinf(best)


def test_a_corrected_hib_has_a_finite_optimum(released: ToyTask) -> None:
    scan = calibration_scan(released, LOSSES["hib written, a = 2, b = 1"].build(), n_anchors=512)
    assert 0.5 <= scan.best <= 2


def test_true_positives_need_a_larger_kappa_of_the_released_loss(theorem: ToyTask) -> None:
    assert is_close(calibration_scan(theorem, LOSSES["coded"].build(), n_anchors=384).best, 2.0)


@pytest.mark.parametrize("source", Negatives)
def test_every_source_of_negatives(released: ToyTask, source: Negatives) -> None:
    loss = MCInfoNCE.Config(n_samples=4, positive_weight=PositiveWeight.ONE).build()
    scan = calibration_scan(released, loss, source, n_negatives=3, n_anchors=256, factors=(0.5, 1.0, 2.0))
    assert len(scan.losses) == 3
    assert all(math.isfinite(value) for value in scan.losses)


def test_a_flat_tail_counts_as_infinite() -> None:
    flat = Calibration((1.0, 2.0, 100.0), (1.0, 0.5, 0.501), (0.01, 0.0, 0.01))
    assert math.isinf(flat.best)
    assert "no finite optimum" in flat.warning
    assert Calibration((1.0, 2.0, 100.0), (1.0, 0.5, 0.6), (0.01, 0.0, 0.01)).best == 2.0
