"""A metric is judged from the phase that trains it, by seeds that have not failed; a tie does not change by what."""

import pytest

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.metrics.names import KAPPA_RANK_CORR, TRAIN_LOSS
from pcl.studies.ledger.folders import Row
from pcl.studies.results.metric_onset import judged_curve, judged_from
from tests.studies.results.test_asha import KAPPA, LOSS, MU, config_of, rows_of


def test_a_seed_that_has_failed_judges_nothing() -> None:
    config = RunConfig.of({"training.phases": "joint", "training.n_batches": 100}, scale="smoke")
    failures = {2: Failure(FailureKind.NAN, "at batch 60")}
    by_seed = {1: {KAPPA_RANK_CORR: 0.5}, 2: {KAPPA_RANK_CORR: 0.9}, 3: {TRAIN_LOSS: 1.0}}
    rows = [Row(batch, 100, 1, 0.1, by_seed, failures) for batch in (60, 80)]
    assert [value for _, value in judged_curve(rows, config, KAPPA_RANK_CORR)] == [0.5, 0.5]


def test_of_equal_evaluations_of_images_the_first_stays_the_best() -> None:
    config = RunConfig.of({"training.phases": "joint", "training.n_batches": 50}, task="images", scale="smoke")
    rows = [
        Row(batch, 50, 1, 0.1, {1: {"val/crop_rank_corr": 0.5, "val/recall_at_1": recall}}, {})
        for batch, recall in ((10, 0.1), (20, 0.9))
    ]
    assert [value for _, value in judged_curve(rows, config, "val/recall_at_1")] == [0.1, 0.1]


@pytest.mark.parametrize(
    ("phases", "metric", "batch"),
    [
        ("mu kappa", KAPPA, 50),
        ("mu:3 kappa", "eval/spread_mae", 75),
        ("mu kappa joint:2", KAPPA, 25),
        ("joint", KAPPA, 0),
        ("mu kappa", MU, 0),
        ("kappa joint", MU, 50),
        ("mu kappa joint:2", LOSS, 50),
        ("mu:3 kappa", LOSS, 75),
        ("mu", KAPPA, 100),
    ],
)
def test_a_metric_is_judged_from_the_first_phase_that_trains_it(phases: str, metric: str, batch: int) -> None:
    assert judged_from(config_of(phases), metric) == batch


def test_images_are_judged_by_kappa_too() -> None:
    config = RunConfig.of({"training.phases": "mu kappa", "training.n_batches": 80}, task="images", scale="smoke")
    assert judged_from(config, "val/crop_rank_corr") == 40
    assert judged_from(config, "val/recall_at_1") == 0


def test_a_curve_has_no_report_of_the_mu_phase_and_not_the_last_one() -> None:
    curve = judged_curve(rows_of([0.9, 0.9, 0.9, 0.9, 0.9, 0.1, 0.2, 0.3, 0.4, 0.5]), config_of(), KAPPA)
    assert curve == [(20, 0.1), (40, 0.2), (60, 0.3), (80, 0.4)]


def test_images_have_a_curve_of_their_best_so_far() -> None:
    config = RunConfig.of(
        {"training.phases": "joint", "training.n_batches": 50, "training.eval_every": 10}, task="images", scale="smoke"
    )
    crops, recalls = [0.5, 0.3, 0.6, 0.1], [0.1, 0.9, 0.2, 0.8]
    rows = [
        Row(10 * i, 50, i, 0.1, {1: {"val/crop_rank_corr": crop, "val/recall_at_1": recall}}, {})
        for i, (crop, recall) in enumerate(zip(crops, recalls, strict=True), 1)
    ]
    assert [value for _, value in judged_curve(rows, config, "val/crop_rank_corr")] == [0.5, 0.5, 0.6, 0.6]
    assert [value for _, value in judged_curve(rows, config, "val/recall_at_1")] == [0.1, 0.1, 0.2, 0.2]
