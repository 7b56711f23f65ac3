"""The size of kappa beside its order: rank correlation judges the order alone."""

import contextlib
from collections.abc import Iterable, Sequence

from pcl.metrics.names import KAPPA_MAE, KAPPA_RANK_CORR
from pcl.studies.results.selection import Outcome
from pcl.studies.space.trial import Trial

SCALE_OFF = "order right, scale off"
_ORDERED = 0.9  # rank correlation from which an order is called right


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
