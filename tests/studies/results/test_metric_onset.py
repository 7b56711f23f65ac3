"""A metric is judged by the seeds that have not failed, and a tie does not change by what."""

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.metrics.names import KAPPA_RANK_CORR, TRAIN_LOSS
from pcl.studies.ledger.folders import Row
from pcl.studies.results.metric_onset import judged_curve


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
