"""Means and intervals against SciPy, differences by seed, and what is said of them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pcl.studies.results.paired_differences import by_chance, paired, verdict
from pcl.studies.results.statistics import Estimate, estimate, standard_error, t_quantile
from tests.support.properties import examples

VALUES = st.lists(st.floats(-1e3, 1e3).map(lambda value: round(value, 3)), min_size=2, max_size=9)
LARGER, SMALLER, NEITHER = "eval/kappa_rank_corr", "eval/kappa_mae", "eval/kappa_mean"


@examples(50)
@given(values=VALUES)
def test_an_interval_is_scipys(values: list[float]) -> None:
    found = estimate(values)
    error = float(stats.sem(values))
    assert found.n == len(values)
    assert found.mean == pytest.approx(sum(values) / len(values), abs=1e-9)
    assert found.error == pytest.approx(error, abs=1e-9)
    assert standard_error(values) == found.error
    if error > 1e-6:
        low, high = stats.t.interval(0.95, len(values) - 1, found.mean, error)
        assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-9)
        assert found.has_interval
    elif len(set(values)) == 1:
        assert not found.has_interval


@pytest.mark.parametrize("n", [2, 3, 5, 30])
def test_quantiles_are_those_of_students_t(n: int) -> None:
    assert t_quantile(n) == pytest.approx(stats.t.ppf(0.975, n - 1), rel=1e-9)


def test_too_few_values_have_no_interval() -> None:
    none, one = estimate([]), estimate([0.5])
    assert (none.n, one.n, one.mean) == (0, 1, 0.5)
    assert math.isnan(none.mean)
    for found in (none, one):
        assert all(map(math.isnan, (found.error, found.low, found.high)))
        assert not found.has_interval
    assert math.isnan(standard_error([0.5]))
    assert standard_error([0.5, 0.7]) == pytest.approx(0.1)
    assert math.isnan(standard_error([0.5, math.inf]))
    assert math.isnan(standard_error([0.5, math.nan]))
    found = estimate([0.5, 0.7])  # two are enough
    assert (found.low, found.high) == pytest.approx(stats.t.interval(0.95, 1, 0.6, 0.1))


@examples(30)
@given(
    variant=st.dictionaries(st.sampled_from("12345"), st.integers(-9, 9).map(float)),
    baseline=st.dictionaries(st.sampled_from("12345"), st.integers(-9, 9).map(float)),
)
def test_differences_are_of_the_seeds_that_both_have(variant: dict[str, float], baseline: dict[str, float]) -> None:
    common = sorted(set(variant) & set(baseline))
    found = paired(variant, baseline)
    assert found.n == len(common)
    if common:
        assert found.mean == pytest.approx(sum(variant[seed] - baseline[seed] for seed in common) / len(common))


def test_a_verdict_needs_an_interval_on_one_side_of_zero() -> None:
    above, below, around = Estimate(0.2, 0.05, 0.1, 0.3, 5), Estimate(-0.2, 0.05, -0.3, -0.1, 5), estimate([-0.1, 0.3])
    assert [verdict(LARGER, found) for found in (above, below, around)] == ["better", "worse", "unclear"]
    assert [verdict(SMALLER, found) for found in (above, below, around)] == ["worse", "better", "unclear"]
    assert [verdict(NEITHER, found) for found in (above, below, around)] == ["larger", "smaller", "unclear"]
    assert verdict(LARGER, Estimate(0.1, 0.05, 0.0, 0.2, 5)) == "unclear"
    assert verdict(LARGER, Estimate(-0.1, 0.05, -0.2, 0.0, 5)) == "unclear"
    assert verdict(LARGER, estimate([0.2, 0.2])) == "better"
    assert verdict(LARGER, estimate([0.0, 0.0])) == "same"
    assert verdict(LARGER, estimate([0.0])) == "same"
    assert verdict(LARGER, estimate([-0.5, 0.5])) == "unclear"  # of mean 0, though no two are the same
    assert verdict(LARGER, estimate([0.5])) == "unclear"
    assert verdict(LARGER, estimate([])) == "unclear"


@pytest.mark.parametrize(("n", "expected"), [(5, None), (6, "0.3"), (20, "1"), (24, "1.2"), (2000, "100")])
def test_intervals_that_miss_zero_by_chance_are_counted(n: int, expected: str | None) -> None:
    text = by_chance(n)
    assert text == "" if expected is None else f"about {expected} would" in text
    assert expected is None or text.startswith(f"{n:,} intervals of 95%")
