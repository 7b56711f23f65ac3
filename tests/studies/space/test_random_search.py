"""Ranges, and random searches: what is drawn, again and again the same."""

import itertools
import math
import random
from typing import Any

import pytest
from ray import tune

from pcl.config.run_config import RunConfig
from pcl.studies.space.ranges import Range, integers, log_uniform, uniform
from pcl.studies.space.search_method import RANDOM, draws, n_trials_of, searched
from pcl.studies.space.search_space import Stage, load_space
from tests.support.searches import GRID, RANGED, RANGES, spec_of
from tests.support.spaces import make


class TestRanges:
    @pytest.mark.parametrize(
        "axis", [uniform(-1, 2.5), log_uniform(1e-5, 1e-3), integers(1, 3), Range(1, 9, True, True)]
    )
    def test_draws_are_inside_and_reach_everywhere(self, axis: Range) -> None:
        generator = random.Random(0)
        drawn = [axis.draw(generator) for _ in range(2000)]
        assert all(axis.low <= number <= axis.high for number in drawn)
        assert not axis.is_whole or all(number == int(number) for number in drawn)
        middle = math.sqrt(axis.low * axis.high) if axis.is_log else (axis.low + axis.high) / 2
        below = sum(number < middle for number in drawn) / 2000
        assert 0.25 < below < 0.65  # whole numbers may lie on the middle
        assert not axis.is_whole or (min(drawn), max(drawn)) == (axis.low, axis.high)
        assert axis.sample(random_state=3) == axis.sample(random_state=3)

    @pytest.mark.parametrize(
        ("make_it", "says"),
        [
            (lambda: uniform(1, 1), "low end must be below"),
            (lambda: uniform(0, math.inf), "finite numbers"),
            (lambda: log_uniform(0, 1), "above 0"),
            (lambda: integers(1, 2.5), "whole numbers"),  # type: ignore[arg-type]
            (lambda: make(stages=(Stage("s", {"training.lr": uniform(0, 1)}),)), "training.lr"),
            (lambda: make(stages=(Stage("s", {"loss.n_samples": uniform(1, 8)}),)), "whole number"),
            (lambda: make(stages=(Stage("s", {"loss.n_sample": integers(1, 8)}),)), "Did you mean"),
            (lambda: searched("x", tune.randn(0, 1)), "the axis 'x' must be uniform"),
        ],
    )
    def test_impossible_ones_get_one_sentence(self, make_it: Any, says: str) -> None:
        with pytest.raises(ValueError, match=says) as error:
            make_it()
        assert "\n" not in str(error.value)

    def test_rays_domains_are_ranges(self) -> None:
        assert searched("x", tune.uniform(1, 2)) == uniform(1, 2)
        assert searched("x", tune.loguniform(1, 2)) == log_uniform(1, 2)
        assert searched("x", tune.randint(1, 9)) == integers(1, 8)
        assert searched("x", tune.quniform(1, 3, 0.5)) == Range(1, 3, step=0.5)
        assert searched("x", tune.choice([8, 9])) == (8, 9)

    def test_a_space_with_ranges_is_data(self) -> None:
        assert RANGED.is_sampled
        changed = make(stages=(Stage("ranges", {**RANGES, "loss.n_samples": integers(1, 65)}),))
        assert RANGED.fingerprint() not in (changed.fingerprint(), GRID.fingerprint())
        assert RANGED.fingerprint() == make(stages=(Stage("ranges", dict(RANGES)),)).fingerprint()


class TestRandom:
    def test_the_same_seed_has_the_same_trials(self) -> None:
        for space in (RANGED, GRID):
            keys = [[t.key for t in spec_of(space, RANDOM, seed=seed).trials(space, 0, {})] for seed in (0, 0, 1)]
            assert keys[0] == keys[1]
            assert set(keys[0]) != set(keys[2])
            assert len(set(keys[0])) == 12

    def test_more_trials_have_the_fewer_ones_among_them(self) -> None:
        few, more = ([t.key for t in spec_of(RANGED, RANDOM, n).trials(RANGED, 0, {})] for n in (5, 20))
        assert more[:5] == few

    def test_trials_are_possible_and_where_the_axes_are(self) -> None:
        for trial in spec_of(RANGED, RANDOM, 40).trials(RANGED, 0, {}):
            assert RunConfig.from_flat(trial.config).flat() == trial.config
            assert 1e-4 <= trial.run_config.training.lr <= 1e-2
            assert trial.varied["M"] in ("0", "1", "4")
            assert trial.config["loss.n_samples"] in range(1, 65)

    def test_a_small_space_is_drawn_once(self) -> None:
        space = make(stages=(Stage("s", {"loss.n_samples": integers(1, 4)}),))
        trials = spec_of(space, RANDOM, 9).trials(space, 0, {})
        assert sorted(int(trial.config["loss.n_samples"]) for trial in trials) == [1, 2, 3, 4]
        cells = spec_of(GRID, RANDOM, 99).trials(GRID, 0, {})
        assert {t.key for t in cells} == {t.key for t in spec_of(GRID, "grid", 0).trials(GRID, 0, {})}

    def test_defaults(self) -> None:
        assert n_trials_of(RANGED.stages[0], None) == 30  # of 3 x 10 x 10
        assert n_trials_of(GRID.stages[0], None) == 10
        assert n_trials_of(load_space("toy_infonce").stages[0], None) == 3
        assert n_trials_of(GRID.stages[0], 99) == 30
        assert list(itertools.islice(draws(RANGED.stages[0], 0), 3)) == list(
            itertools.islice(draws(RANGED.stages[0], 0), 3)
        )
