"""A search that is killed before any statement to Optuna's database goes on as if nothing had been."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.support.crash_points import crash_points
from tests.support.searches import SMALL, Driver, spec_of

EXPECTED_SECONDS = 30


def search(folder: Path, n: int = 12) -> Driver:
    """Search a space of 12 cells, in which the sampler repeats itself until a point is drawn instead."""
    return Driver(SMALL, spec_of(SMALL, n=n), folder / "s").run()


@pytest.mark.parametrize("every", [61, pytest.param(7, marks=pytest.mark.slow)])
def test_a_search_killed_at_any_statement_proposes_the_same(every: int, tmp_path: Path) -> None:
    expected = search(tmp_path / "calm")
    assert len(expected.optuna().trials) > 20, "no point was drawn"
    Driver(
        SMALL, spec_of(SMALL, n=12), tmp_path / "empty" / "s"
    )  # Optuna makes its tables; other tests kill it at that
    prepare = partial(shutil.copytree, tmp_path / "empty", dirs_exist_ok=True)
    n_points = 0
    for folder in crash_points(tmp_path / "points", search, prepare, is_sql=True, every=every):
        n_points += 1
        assert search(folder).keys == expected.keys, folder.name
        shutil.rmtree(folder)
    assert n_points >= 5


def test_an_ask_may_be_interrupted_twice_and_with_a_part_of_its_values(tmp_path: Path) -> None:
    expected = search(tmp_path / "calm")
    for n_values in (0, 1):
        before = Driver(SMALL, spec_of(SMALL, n=12), tmp_path / str(n_values) / "s").run(3)
        for _ in range(2):
            half = before.optuna().ask()
            for name, axis in list(before.proposer._sampling._distributions.items())[:n_values]:
                half._suggest(name, axis)
            before = Driver(SMALL, spec_of(SMALL, n=12), tmp_path / str(n_values) / "s")
        assert before.run().keys == expected.keys
