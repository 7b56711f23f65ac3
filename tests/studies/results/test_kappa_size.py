"""The size of kappa beside its order: the best constant, and trials that order inputs with kappas of a wrong size."""

import dataclasses

import pytest
import torch

from pcl.config.run_config import RunConfig
from pcl.metrics.names import KAPPA_MAE, KAPPA_RANK_CORR
from pcl.studies.ledger.folders import Result, Status
from pcl.studies.report.outputs import table
from pcl.studies.results.kappa_size import (
    SCALE_OFF,
    common_constant_error,
    constant_error,
    is_scale_off,
    loses_to_constant,
)
from pcl.studies.results.selection import Outcome, ranked
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
    assert constant_error(of) == pytest.approx(torch.stack(errors).amin(0).mean().item(), abs=1e-2)


def test_there_is_none_without_a_known_finite_kappa() -> None:
    assert constant_error(trial(**{"task.family": "dirac"})) is None
    images = RunConfig.of(scale="smoke", task="images")
    assert constant_error(Trial(images.flat(), (1,), "grid")) is None
    assert constant_error(Trial({}, (1,), "grid")) is None
    assert common_constant_error([trial(), trial((3,))]) is None
    assert common_constant_error([trial(), trial()]) == constant_error(trial())


def test_a_trial_is_marked_where_its_order_is_right_and_its_size_is_not() -> None:
    of = trial()
    constant = constant_error(of)
    assert constant is not None
    off, good, poor = outcome(0.9, 4154.0, of), outcome(0.8, constant / 2, of), outcome(0.1, 4154.0, of)
    assert [is_scale_off(one) for one in (off, good, poor, Outcome(of))] == [True, False, False, False]
    assert [loses_to_constant(one) for one in (off, good, poor, Outcome(of))] == [True, False, True, False]
    space = load_space("toy_mcinfonce")
    outcomes = ranked([good, poor, off], space.objective)
    assert outcomes == [off, good, poor]  # the mark ranks nothing
    head, *rows, last = table(outcomes, space)
    assert [SCALE_OFF in row for row in rows] == [True, False, False]
    assert "kappa MAE" in head
    assert last.split() == ["-", f"{constant:.3f}", "the", "best", "constant", "kappa"]
    assert len(table([dataclasses.replace(off, trial=trial((3,))), good], space)) == 3
