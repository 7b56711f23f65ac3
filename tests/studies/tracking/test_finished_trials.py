"""What MLflow knows of a configuration, of whichever seeds trials have trained it on."""

from dataclasses import replace
from pathlib import Path

from pcl.config.failure import Failure, FailureKind
from pcl.studies.tracking.finished_trials import known
from pcl.studies.tracking.tracker import Tracker
from tests.support.trackers import end, error, make_trial, opened, report


def record(
    tracker: Tracker,
    path: Path,
    seeds: tuple[int, ...],
    failure: Failure | None = None,
    failures: dict[int, Failure] | None = None,
) -> None:
    """A trial of one configuration, ended and in MLflow."""
    folder = make_trial(path, seeds, n_samples=6)
    report(folder, 4, 8, failures=failures)
    end(folder, failure)
    tracker.sync(folder)


def test_seeds_of_one_configuration_are_put_together(uri: str, tmp_path: Path) -> None:
    tracker = opened(uri, "parts")
    trial = replace(make_trial(tmp_path, (1,), n_samples=6).trial(), seeds=(4, 5, 6, 7))
    assert known(tracker.store, trial).missing == (4, 5, 6, 7)
    record(tracker, tmp_path, (4,))
    record(tracker, tmp_path, (5, 4, 9), failures={5: error("NaN in the loss")})
    record(tracker, tmp_path, (6,), failure=Failure(FailureKind.WORKER_DIED, "no memory"))
    found = known(tracker.store, trial)
    assert found.missing == (6, 7)  # a seed whose machine went away counts for nothing
    assert {seed: round(m["eval/kappa_rank_corr"], 3) for seed, m in found.by_seed.items()} == {4: 0.408, 5: 0.508}
    assert found.failures == {5: error("NaN in the loss")}
    assert len(found.trials) == 1  # that of seed 4 alone adds nothing
    record(tracker, tmp_path, (6, 7), failure=Failure(FailureKind.RUNAWAY_KAPPA, "2e7"))
    found = known(tracker.store, trial)
    assert (found.missing, found.failures[7].kind) == ((), FailureKind.RUNAWAY_KAPPA)
    record(tracker, tmp_path, (4, 5, 6, 7))
    whole = known(tracker.store, trial)
    assert [part.key for part in whole.trials] == [trial.key]  # itself, where it is there
    assert whole.failures == {}
    other = replace(trial, data="other")
    assert known(tracker.store, other).trials == ()


def test_the_cause_of_a_lone_seed_is_told_as_that_of_one_among_others(uri: str, tmp_path: Path) -> None:
    tracker = opened(uri, "lone")
    failure = Failure(FailureKind.RUNAWAY_KAPPA, "its median 2e+07 at batch 8")
    record(tracker, tmp_path, (14,), Failure(FailureKind.DIVERGED, f"seed 14: {failure}"), {14: failure})
    trial = replace(make_trial(tmp_path, (1,), n_samples=6).trial(), seeds=(14, 15))
    assert known(tracker.store, trial).failures == {14: failure}
