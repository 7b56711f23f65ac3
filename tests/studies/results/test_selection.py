"""Selection against its rule, for any outcomes: whole trials, those that lost seeds, then those without a value."""

import math
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from pcl.config.failure import Failure, FailureKind
from pcl.studies.ledger.folders import Result, Row, Status, TrialFolder
from pcl.studies.results.selection import Outcome, ranked, winner
from pcl.studies.space.search_space import Mode, Objective
from pcl.studies.space.trial import Trial
from tests.support.properties import examples

METRIC = "eval/kappa_rank_corr"
NAN = Failure(FailureKind.NAN, "at batch 4")
NUMBERS = st.integers(-3, 3).map(float) | st.sampled_from([math.nan, math.inf, -math.inf])
OUTCOMES = st.lists(
    st.builds(
        Outcome,
        st.integers(0, 10**6).map(lambda i: Trial({"i": i}, (1, 2), "grid")),
        st.sampled_from([None, *(Result(status) for status in Status)]),
        st.dictionaries(
            st.integers(1, 3), st.dictionaries(st.sampled_from([METRIC, "train/loss"]), NUMBERS), max_size=3
        ),
        st.dictionaries(st.integers(1, 3), st.just(NAN), max_size=2),
        st.integers(0, 5),
    ),
    max_size=6,
)


def value(outcome: Outcome) -> float:
    """The mean over seeds that have not failed, by hand."""
    seeds = [seed for seed in outcome.by_seed if seed not in outcome.failures]
    values = [outcome.by_seed[seed][METRIC] for seed in seeds if METRIC in outcome.by_seed[seed]]
    return sum(values) / len(values) if values else math.nan


def is_finished(outcome: Outcome) -> bool:
    return outcome.result is not None and outcome.result.status is Status.FINISHED


def group(outcome: Outcome) -> int:
    if is_finished(outcome) and math.isfinite(value(outcome)):
        return 1 if outcome.failures else 0
    return 2 if outcome.result is not None and outcome.result.status is Status.STOPPED else 3


@examples(50)
@given(outcomes=OUTCOMES, mode=st.sampled_from(Mode))
def test_ranks_follow_the_rule(outcomes: list[Outcome], mode: Mode) -> None:
    found = ranked(outcomes, Objective(METRIC, mode))
    assert sorted(map(id, found)) == sorted(map(id, outcomes))
    came = {id(outcome): place for place, outcome in enumerate(outcomes)}
    sign = 1 if mode is Mode.MAX else -1
    for one, other in pairwise(found):
        assert group(one) <= group(other)
        if group(one) == group(other):
            # The better one; of those that were stopped, the one that came farther; else the one that came first
            goods = [
                (sign * value(o) if group(o) < 2 else o.batch * (group(o) == 2), -came[id(o)]) for o in (one, other)
            ]
            assert goods[0] > goods[1]
    best = winner(outcomes, Objective(METRIC, mode))
    assert best is (found[0] if found and group(found[0]) < 2 else None)


def test_an_outcome_is_the_last_report(tmp_path: Path) -> None:
    trial = Trial({"i": 1}, (1, 2), "grid")
    folder = TrialFolder(tmp_path / trial.key)
    assert Outcome.of(trial, folder) == Outcome(trial)
    folder.begin(trial)
    token = folder.claim()
    for batch in (4, 8):
        folder.publish(Row(batch, 8, 1, batch / 2, {1: {METRIC: batch / 10}, 2: {METRIC: math.inf}}, {2: NAN}), token)
    found = Outcome.of(trial, folder)
    assert (found.trial, found.result, found.batch, found.seconds) == (trial, None, 8, 4.0)
    assert (found.by_seed[1], found.failures) == ({METRIC: 0.8}, {2: NAN})
    assert (found.values(METRIC), found.values("train/loss")) == ([0.8], [])
    assert (found.is_finished, found.is_stopped, found.counts(METRIC)) == (False, False, False)
    assert found.cause == f"seed 2: {NAN}"
    assert Outcome(trial, failures={1: NAN, 2: NAN}).cause == f"seed 1: {NAN}; seed 2: {NAN}"
    folder.end(Result(Status.FINISHED), token)
    assert Outcome.of(trial, folder).counts(METRIC)
    assert not Outcome.of(trial, folder).counts("train/loss")
    folder.close(Result(Status.STOPPED, Failure(FailureKind.STOPPED_EARLY, "by ASHA")))
    assert Outcome.of(trial, folder).is_stopped
    assert Outcome.of(trial, folder).cause == "stopped early by ASHA"
