"""Trials are judged by what they must be better than: the best constant kappa, and Recall@1 by chance."""

import dataclasses
import math

import pytest
import torch

from pcl.config.failure import Failure, FailureKind
from pcl.config.run_config import RunConfig
from pcl.metrics.names import KAPPA_MAE, KAPPA_RANK_CORR, VAL_CHANCE, VAL_CROP, VAL_RECALL
from pcl.studies.ledger.folders import Result, Status
from pcl.studies.report.outputs import table
from pcl.studies.results.selection import Outcome, ranked
from pcl.studies.results.yardsticks import (
    SCALE_OFF,
    common_constant_kappa_mae,
    is_near_chance,
    is_scale_off,
    loses_to_constant,
    shortcomings,
    trial_constant_kappa_mae,
)
from pcl.studies.space.search_space import load_space
from pcl.studies.space.trial import Trial
from pcl.tasks.toy import ToyTask

SIZES = {"task.n_eval": 200, "task.dim_x": 2, "task.smoothing": "none", "task.largest_cosine": 1}


def trial(seeds: tuple[int, ...] = (1, 2), **settings: object) -> Trial:
    return Trial(RunConfig.of({**SIZES, **settings}, scale="smoke").flat(), seeds, "grid", {"M": "1"})


def outcome(rank_corr: float, mae: float, of: Trial) -> Outcome:
    metrics = {KAPPA_RANK_CORR: rank_corr, KAPPA_MAE: mae}
    return Outcome(of, Result(Status.FINISHED), {seed: dict(metrics) for seed in of.seeds})


def test_the_best_constant_is_the_median_of_the_truth() -> None:
    of = trial()
    task = of.run_config.task.build(of.seeds)
    assert isinstance(task, ToyTask)
    kappa = task.kappa_true
    errors = [(kappa - constant).abs().mean(1) for constant in torch.linspace(16, 32, 641)]
    assert trial_constant_kappa_mae(of) == pytest.approx(torch.stack(errors).amin(0).mean().item(), abs=1e-2)


def test_there_is_none_without_a_known_finite_kappa() -> None:
    assert trial_constant_kappa_mae(trial(**{"task.family": "dirac"})) is None
    images = RunConfig.of(scale="smoke", task="images")
    assert trial_constant_kappa_mae(Trial(images.flat(), (1,), "grid")) is None
    assert trial_constant_kappa_mae(Trial({}, (1,), "grid")) is None
    assert common_constant_kappa_mae([trial(), trial((3,))]) is None
    assert common_constant_kappa_mae([trial(), trial()]) == trial_constant_kappa_mae(trial())


def test_a_trial_is_marked_where_its_order_is_right_and_its_size_is_not() -> None:
    of = trial()
    constant = trial_constant_kappa_mae(of)
    assert constant is not None
    off, good, poor = outcome(0.9, 4154.0, of), outcome(0.8, constant / 2, of), outcome(0.1, 4154.0, of)
    assert [is_scale_off(one) for one in (off, good, poor, Outcome(of))] == [True, False, False, False]
    at_par = outcome(0.9, constant, of)
    assert not is_scale_off(at_par)
    assert not is_scale_off(outcome(0.9, 4154.0, trial(**{"task.family": "dirac"})))  # no constant to compare with
    assert [loses_to_constant(one) for one in (off, good, poor, Outcome(of))] == [True, False, True, False]
    space = load_space("toy_mcinfonce")
    outcomes = ranked([good, poor, off], space.objective)
    assert outcomes == [off, good, poor]  # the mark ranks nothing
    head, *rows, last = table(outcomes, space)
    assert [SCALE_OFF in row for row in rows] == [True, False, False]
    assert "kappa MAE" in head
    assert last.split() == ["-", f"{constant:.3f}", "the", "best", "constant", "kappa"]
    assert len(table([dataclasses.replace(off, trial=trial((3,))), good], space)) == 3


def test_a_lost_seed_does_not_count_for_the_size() -> None:
    """Seed 1 ran away: the error of seed 2 is compared with the constant of seed 2 alone."""
    of = trial()
    alone = trial_constant_kappa_mae(of, (2,))
    assert alone is not None
    both = trial_constant_kappa_mae(of)
    assert both is not None
    assert alone != pytest.approx(both)
    between = (alone + both) / 2
    one = outcome(0.95, between, of)
    one = dataclasses.replace(one, failures={1: Failure(FailureKind.RUNAWAY_KAPPA)})
    assert is_scale_off(one) == (between > alone)
    without = dataclasses.replace(one, by_seed={1: {KAPPA_RANK_CORR: 1.0}, 2: one.by_seed[2]}, failures={})
    assert is_scale_off(without) == (between > alone)


def image_outcome(chance: float, recall: float) -> Outcome:
    of = Trial(RunConfig.of(scale="smoke", task="images").flat(), (1,), "grid", {"M": f"{recall}"})
    return Outcome(of, Result(Status.FINISHED), {1: {VAL_CROP: 0.2, VAL_RECALL: recall, VAL_CHANCE: chance}})


@pytest.mark.parametrize(
    ("chance", "recall", "is_near"),
    [(0.1, 0.08, True), (0.1, 0.18, True), (0.1, 0.2, False), (0.5, 0.54, True), (0.5, 0.56, False),
     (0.1, math.nan, False), (math.nan, 0.1, False)],
)  # fmt: skip
def test_a_recall_near_chance_is_told(chance: float, recall: float, is_near: bool) -> None:
    one = image_outcome(chance, recall)
    assert is_near_chance(one) == is_near
    assert shortcomings(one) == ["its Recall@1 is hardly better than chance"] * is_near


def test_chance_stands_below_the_trials_that_share_it() -> None:
    space = load_space("cifar_mcinfonce")
    *_, last = table([image_outcome(0.1, 0.9), image_outcome(0.1, 0.8)], space)
    assert last.split() == ["-", "0.100", "by", "chance"]
    for others in (image_outcome(0.2, 0.8), image_outcome(math.nan, 0.8)):  # of other classes, or of an older record
        *_, last = table([image_outcome(0.1, 0.9), others], space)
        assert "chance" not in last


def test_what_a_trial_is_no_better_than_is_told() -> None:
    of = trial()
    assert shortcomings(outcome(0.9, 4154.0, of)) == ["a constant kappa would be closer to the truth"]
    assert shortcomings(outcome(0.9, 0.0, of)) == []
