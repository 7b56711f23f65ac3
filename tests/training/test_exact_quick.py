"""The exact recipe at the scale `quick`: the paper's ambiguous setting, in a minute on two CPU cores."""

import pytest

from pcl.config.run_config import RunConfig
from pcl.training.run import Run

EXPECTED_SECONDS = 70


@pytest.mark.slow
def test_kappa_is_recovered_in_order_and_size() -> None:
    """On a seed that nothing was chosen on. One kappa for all inputs has an error of 2.0, the paper's encoder 6.15.

    Seen: an error of 0.80, a rank of 0.91 and 90% in the caps. Other seeds have 0.75 to 1.54, from 0.82 and from 77%.
    """
    run = Run(RunConfig.of(profile="exact", scale="quick"), (6,))
    *_, last = run
    truths = run.step.task.truths()
    assert truths is not None
    best_constant = (truths.kappa - truths.kappa.median()).abs().mean()
    assert 1.5 < best_constant < 2.5
    assert last.metrics["eval/kappa_mae"] < 0.75 * best_constant
    assert last.metrics["eval/kappa_rank_corr"] > 0.6
    assert 0.7 < last.metrics["eval/coverage_90"] < 0.97
