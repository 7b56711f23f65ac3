"""Yardsticks that trials must beat: the best constant kappa for the size of kappa, and chance for Recall@1.

Rank correlations show neither: they judge only the order of kappa.
"""

import contextlib
import math
from collections.abc import Iterable, Sequence

from pcl.metrics.names import KAPPA_MAE, KAPPA_RANK_CORR, VAL_CHANCE, VAL_RECALL
from pcl.studies.results.selection import Outcome
from pcl.studies.space.trial import Trial

SCALE_OFF = "order right, scale off"
_ORDERED = 0.9  # rank correlation from which an order is called right
_NEAR_CHANCE = 0.1  # share of the way from chance to a Recall@1 of 1 that still counts as chance


def trial_constant_kappa_mae(trial: Trial, seeds: Sequence[int] = ()) -> float | None:
    """Return the kappa MAE of the best constant kappa on a trial's inputs, of all or some seeds; None without truth."""
    with contextlib.suppress(ValueError):  # a configuration of a user's file that nobody has named
        return trial.run_config.task.constant_kappa_mae(seeds or trial.seeds)
    return None


def common_constant_kappa_mae(trials: Iterable[Trial]) -> float | None:
    """Return the constant error that all trials share; None where they differ, or there are none."""
    found = {trial_constant_kappa_mae(trial) for trial in trials}
    return found.pop() if len(found) == 1 else None


def is_scale_off(outcome: Outcome) -> bool:
    """Return whether a trial orders inputs by kappa, yet is further off than the best constant kappa."""
    return outcome.mean(KAPPA_RANK_CORR) >= _ORDERED and loses_to_constant(outcome)


def loses_to_constant(outcome: Outcome) -> bool:
    """Return whether a trial's kappas are further off than the best constant kappa."""
    seeds = [seed for seed, metrics in outcome.by_seed.items() if KAPPA_MAE in metrics and seed not in outcome.failures]
    constant = trial_constant_kappa_mae(outcome.trial, seeds) if seeds else None
    return constant is not None and outcome.mean(KAPPA_MAE) > constant


def common_chance(outcomes: Iterable[Outcome]) -> float | None:
    """Return the mean Recall@1 of neighbours drawn blindly, if all trials that have a Recall@1 share it."""
    found = {outcome.mean(VAL_CHANCE) for outcome in outcomes if outcome.values(VAL_RECALL)}
    chance = found.pop() if len(found) == 1 else math.nan
    return chance if math.isfinite(chance) else None


def is_near_chance(outcome: Outcome) -> bool:
    """Return whether a trial finds neighbours of the same class hardly more often than drawn blindly."""
    chance, recall = outcome.mean(VAL_CHANCE), outcome.mean(VAL_RECALL)
    return recall - chance < _NEAR_CHANCE * (1 - chance)  # false where either is unknown, a NaN


def shortcomings(outcome: Outcome) -> list[str]:
    """Return in words what a trial is no better than."""
    found = {
        "a constant kappa would be closer to the truth": loses_to_constant(outcome),
        "its Recall@1 is hardly better than chance": is_near_chance(outcome),
    }
    return [words for words, is_so in found.items() if is_so]
