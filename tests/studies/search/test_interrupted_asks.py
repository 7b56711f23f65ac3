"""A search that is killed before any statement to Optuna's database goes on as if nothing had been."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import optuna
import pytest
from optuna.trial import TrialState

from pcl.studies.space.search_space import Stage
from tests.support.crash_points import crash_states
from tests.support.searches import RANGED, Driver, spec_of
from tests.support.spaces import make

EXPECTED_SECONDS = 20

TINY = make(stages=(Stage("grid", {"loss.kappa_pos": (11, 12, 13), "loss.n_samples": (2, 4)}),))
SPEC = spec_of(TINY, n=4)


def search(folder: Path) -> Driver:
    return Driver(TINY, SPEC, folder / "s").run()


@pytest.fixture
def calm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """An undisturbed search, whose sampler repeats itself so that points are drawn instead."""
    monkeypatch.setattr("pcl.studies.search.proposals.MOST_REPEATS", 1)
    found = search(tmp_path / "calm")
    assert len(found.optuna().trials) > len(found.keys)
    return found


@pytest.mark.parametrize("every", [97, pytest.param(11, marks=pytest.mark.slow)])
def test_a_search_killed_at_any_statement_proposes_the_same(every: int, calm: Driver, tmp_path: Path) -> None:
    Driver(TINY, SPEC, tmp_path / "empty" / "s")  # Optuna makes its tables; other tests kill it at that
    prepare = partial(shutil.copytree, tmp_path / "empty", dirs_exist_ok=True)
    n_points = 0
    for folder in crash_states(tmp_path / "points", search, prepare, is_sql=True, every=every):
        n_points += 1
        assert search(folder).keys == calm.keys, folder.name
        shutil.rmtree(folder)
    assert n_points >= 5


@pytest.mark.parametrize("n_values", [0, 1])
def test_an_ask_may_be_interrupted_twice_with_none_or_some_of_its_values(n_values: int, tmp_path: Path) -> None:
    spec = spec_of(RANGED, n=4)
    expected = Driver(RANGED, spec, tmp_path / "calm").run().keys
    before = Driver(RANGED, spec, tmp_path / "s").run(2)
    for _ in range(2):
        half = before.optuna().ask()
        for name, axis in list(before.proposer._sampling._distributions.items())[:n_values]:
            half._suggest(name, axis)
        before = Driver(RANGED, spec, tmp_path / "s")
    assert before.run().keys == expected


def test_a_point_that_was_enqueued_and_not_asked_for_is_not_enqueued_again(calm: Driver, tmp_path: Path) -> None:
    """As by a driver that is killed between the two."""
    ask = optuna.Study.ask

    def killed(study: optuna.Study, *arguments: Any) -> Any:
        if any(trial.state is TrialState.WAITING for trial in study.get_trials(deepcopy=False)):
            raise KeyboardInterrupt
        return ask(study, *arguments)

    with mock.patch.object(optuna.Study, "ask", killed), pytest.raises(KeyboardInterrupt):
        search(tmp_path)
    after = search(tmp_path)
    assert after.keys == calm.keys
    assert len(after.optuna().trials) == len(calm.optuna().trials)
