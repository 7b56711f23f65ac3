"""Effects of settings against shares that are worked out by hand, and what is not said where trials are few."""

import itertools
import math
import random

import pytest

from pcl.studies.results.parameter_effects import Axis, Importance, Method, Unknown, best_so_far, importance, surface

CELLS = list(itertools.product(range(3), range(4)))
GRID = [Axis("a", [str(a) for a, _ in CELLS]), Axis("b", [str(b) for _, b in CELLS])]
DRAWN = [f"{10 ** random.Random(i).uniform(-4, 0):.4g}" for i in range(30)]


def test_main_effects_of_a_whole_grid_are_shares_of_variance() -> None:
    found = importance(GRID, [a + 2.0 * b for a, b in CELLS], is_larger_better=True)
    assert isinstance(found, Importance)
    assert found.method is Method.MAIN_EFFECTS
    of_a, of_b = 2 / 3, 4 * 15 / 12  # variances of a over 0, 1, 2 and of 2 b over 0, 2, 4, 6
    assert found.shares == pytest.approx({"b": of_b / (of_a + of_b), "a": of_a / (of_a + of_b)})
    assert list(found.shares) == ["b", "a"]
    assert found.rest == pytest.approx(0, abs=1e-12)


def test_interactions_are_no_main_effect() -> None:
    signs = list(itertools.product((-1, 1), (-1, 1), "xyz"))
    axes = [Axis(name, [str(cell[i]) for cell in signs]) for i, name in enumerate("abc")]
    found = importance(axes, [float(a * b) for a, b, _ in signs], is_larger_better=False)
    assert isinstance(found, Importance)
    assert found.rest == pytest.approx(1.0)


def test_an_axis_is_not_credited_with_what_another_explains() -> None:
    """Missing cells give levels of one axis more of the good levels of the other."""
    kept = [i for i, (a, b) in enumerate(CELLS) if a + b < 5]
    axes = [Axis(axis.name, [axis.values[i] for i in kept]) for axis in GRID]
    found = importance(axes, [float(CELLS[i][1]) for i in kept], is_larger_better=True)
    assert isinstance(found, Importance)
    assert found.shares["a"] == pytest.approx(0, abs=1e-12)


def test_too_few_or_equal_trials_tell_nothing() -> None:
    assert importance(GRID, [1.0] * 12, is_larger_better=True) is Unknown.SAME_VALUE
    lone = Axis("a", ["1", "2", "3"])  # as many levels as trials
    assert importance([lone], [0.1, 0.2, 0.3], is_larger_better=True) is Unknown.TOO_FEW
    assert importance([Axis("lr", DRAWN[:9])], [float(i) for i in range(9)], is_larger_better=True) is Unknown.TOO_FEW
    assert importance([], [0.1, 0.2, 0.3], is_larger_better=True) is Unknown.TOO_FEW


@pytest.mark.slow
@pytest.mark.parametrize("is_larger_better", [True, False])
def test_ped_anova_finds_the_setting_of_the_best_trials(is_larger_better: bool) -> None:
    """Slow for one import: Optuna's evaluators load scikit-learn where it is installed."""
    sign = 1.0 if is_larger_better else -1.0
    axes = [Axis("lr", DRAWN), Axis("kind", ["a" if i % 2 else "b" for i in range(30)]), Axis("none", ["", *"x" * 29])]
    values = [-sign * (math.log10(float(lr)) + 2) ** 2 for lr in DRAWN]
    found = importance(axes, values, is_larger_better=is_larger_better)
    assert isinstance(found, Importance)
    assert (found.method, next(iter(found.shares))) == (Method.PED_ANOVA, "lr")
    assert sum(found.shares.values()) == pytest.approx(1.0)


def test_ranges_are_told_from_levels() -> None:
    assert Axis("lr", DRAWN).is_range
    assert Axis("lr", DRAWN).is_log
    whole = Axis("n", [str(i) for i in range(1, 25)])
    assert (whole.is_range, whole.is_log) == (True, False)
    narrow = Axis("kappa_pos", [f"{4 * 5 ** random.Random(i).uniform(0, 1.7):.4g}" for i in range(30)])
    assert (narrow.is_range, narrow.is_log) == (True, True)
    assert not GRID[0].is_range
    assert not Axis("kind", ["joint", "mu kappa"] * 10).is_range
    assert Axis("b", ["8.0", "", "-1.0", "8.0"]).levels == ["", "-1.0", "8.0"]
    assert Axis("lr", ["0.01", "0.1", "1", "0.001"]).places == pytest.approx([1 / 3, 2 / 3, 1, 0])


def test_the_best_so_far_waits_for_a_value() -> None:
    found = best_so_far([math.nan, 3.0, 4.0, math.nan, 2.0], is_larger_better=False)
    assert math.isnan(found[0])
    assert found[1:] == [3.0, 3.0, 3.0, 2.0]


def test_a_surface_has_means_of_levels_and_is_blank_where_nothing_is_near() -> None:
    x, y = Axis("x", ["1", "1", "2"]), Axis("y", ["a", "a", "b"])
    found = surface(x, y, [1.0, 3.0, 5.0])
    assert (found.n_x, found.n_y) == (2, 2)
    assert found.values[0][0] == 2.0
    assert found.values[1][1] == 5.0
    assert math.isnan(found.values[0][1])
    assert surface(x, y, [1.0, 100.0, 5.0], is_log=True).values[0][0] == pytest.approx(10.0)  # geometric
    drawn = surface(Axis("lr", DRAWN), Axis("n", [str(i) for i in range(30)]), [0.5] * 30)
    assert {round(value, 9) for row in drawn.values for value in row if not math.isnan(value)} == {0.5}


def test_a_surface_of_many_levels_stays_small() -> None:
    names = [f"level {i:03}" for i in range(200)]
    found = surface(Axis("x", names), Axis("y", names), [float(i) for i in range(200)])
    assert found.n_x == found.n_y <= 50
    known = [row[i] for i, row in enumerate(found.values)]
    assert known == sorted(known)  # neighbours share a cell, in their order
    assert sum(not math.isnan(value) for row in found.values for value in row) == found.n_x


def test_a_surface_along_ranges_is_a_kernel_smoother() -> None:
    """Against a loop over cells and trials; trials without a setting tell nothing."""
    places, levels = [0.0, 0.1, 0.35, 0.5, 0.8, 1.0, math.nan], ["p", "q", "p", "q", "p", "q", "p"]
    x = Axis("x", ["" if math.isnan(at) else f"{10 + 5 * at}" for at in places])
    values = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 999.0]
    found = surface(x, Axis("y", levels), values, n_cells=5)
    assert (x.is_range, x.is_log, found.n_x, found.n_y) == (True, False, 5, 2)
    for row, level in enumerate("pq"):
        for cell in range(5):
            near = [
                (math.exp(-0.5 * ((cell + 0.5) / 5 - at) ** 2 / 0.12**2), value)
                for at, of, value in zip(places, levels, values, strict=True)
                if of == level and not math.isnan(at)
            ]
            total = sum(weight for weight, _ in near)
            expected = sum(weight * value for weight, value in near) / total if total >= 0.1 else math.nan
            assert found.values[row][cell] == pytest.approx(expected, nan_ok=True), (level, cell)
    assert math.isnan(surface(Axis("x", ["0", "1", "2", "100"]), Axis("y", ["p"] * 4), [1.0] * 4).values[0][12])


def test_scales_and_ranges_at_their_borders() -> None:
    assert not Axis("n", ["0", "1", "10", "100"]).is_log  # zero has no logarithm
    assert not Axis("n", ["-1", "1", "10", "100"]).is_log
    assert not Axis("n", ["1", "2", "4"]).is_log  # spans less than five times
    assert Axis("n", ["1", "2", "", "6"]).is_log  # what is missing does not count
    assert Axis("n", ["1", "inf"]).numbers is None
    assert Axis("n", ["", ""]).numbers is None
    assert not Axis("n", [str(i % 7) for i in range(30)]).is_range  # seven levels, many times each
    assert Axis("n", [str(i % 8) for i in range(30)]).is_range
    assert not Axis("n", ["1", "2", "3", "1", "", ""]).is_range
    assert importance([Axis("a", ["1", "1", "2"])], [0.1, 0.2, 0.5], is_larger_better=True) is not Unknown.TOO_FEW
