"""Replication: pairs on common seeds, more seeds only where it is not clear, and a rule that ends it."""

import json
import math
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from pcl.config.failure import Failure, FailureKind
from pcl.studies.execution.inline_runner import InlineRunner
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.trial_execution import Choices, Execution
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.report.outputs import replication_table, summary, write_all
from pcl.studies.results.replication import (
    MOST_COMPARED,
    MOST_ROUNDS,
    SEEDS_A_ROUND,
    Difference,
    Replication,
    described,
    new_seeds,
    paired,
    together,
    unclear,
)
from pcl.studies.results.selection import Outcome
from pcl.studies.search.stages import Finding, Search
from pcl.studies.space.search_method import Method
from pcl.studies.space.search_space import Mode, Objective, SearchSpace, Stage
from pcl.studies.space.trial import REPLICATE_STAGE, REPORT_STAGE, Trial
from tests.support.spaces import make

METRIC = "eval/kappa_rank_corr"
OBJECTIVE = Objective(METRIC)
TUNING, REPORT = (1, 2, 3), (4, 5, 6)
NAN = Failure(FailureKind.NAN, "at batch 4")


def outcome(name: float, values: dict[int, float], status: Status = Status.FINISHED, **more: Any) -> Outcome:
    trial = Trial({"i": name}, tuple(values), "grid", {"i": name})
    return Outcome(trial, Result(status), {seed: {METRIC: value} for seed, value in values.items()}, **more)


def test_a_pair_is_compared_seed_by_seed_on_common_seeds() -> None:
    best = outcome(0, {1: 0.9, 2: 0.5, 3: 0.7, 9: 0.1})
    other = outcome(1, {1: 0.8, 2: 0.42, 3: 0.59, 8: 0.9})
    found = paired(best, other, OBJECTIVE)
    differences = [0.1, 0.08, 0.11]
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert found.n_seeds == 3
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(tuple(expected))
    # Not paired, the seeds' own differences would hide it.
    assert found.is_clear
    unpaired = stats.ttest_ind([0.9, 0.5, 0.7], [0.8, 0.42, 0.59]).confidence_interval(0.95)
    assert unpaired.low < 0 < unpaired.high
    assert paired(best, other, Objective(METRIC, Mode.MIN)).mean == -found.mean


def test_seeds_that_one_of_a_pair_has_lost_are_in_no_difference() -> None:
    best, other = outcome(0, {1: 0.9, 2: 0.8, 3: 0.7}), outcome(1, {1: 0.8, 2: 0.72, 3: -1.0}, failures={3: NAN})
    found = paired(best, other, OBJECTIVE)
    assert (found.n_seeds, found.mean) == (2, pytest.approx(0.09))
    broken = outcome(2, {1: 0.8, 2: 0.72, 3: float("nan")}, failures={3: NAN})
    assert paired(best, broken, OBJECTIVE) == found
    assert paired(best, outcome(3, {1: 0.8, 2: 0.72, 3: math.nan}), OBJECTIVE) == found


def test_one_seed_excludes_no_one() -> None:
    found = paired(outcome(0, {1: 0.9}), outcome(1, {1: 0.1}), OBJECTIVE)
    assert (found.mean, found.half_width, found.n_seeds) == (0.8, math.inf, 1)
    assert not found.is_clear
    none = paired(outcome(0, {1: 0.9}), outcome(1, {2: 0.1}), OBJECTIVE)
    assert (math.isnan(none.mean), none.half_width, none.n_seeds) == (True, math.inf, 0)


def test_an_interval_that_touches_zero_is_not_clear() -> None:
    assert not Difference(0.5, 0.5, 3).is_clear
    assert Difference(0.5, 0.25, 3).is_clear
    outcomes = [outcome(0, {1: 0.9, 2: 0.9}), outcome(1, {1: 0.4, 2: 0.4}), outcome(2, {1: 0.4})]
    replication = Replication(1, outcomes, [Difference(0.5, 0.25, 2), Difference(0.5, 0.5, 1)])
    best, clear, touching = described(replication, OBJECTIVE)
    assert ("behind" in best, clear.endswith("(2 seeds)"), touching.endswith("(1 seeds, not clear)")) == (
        False,
        True,
        True,
    )
    assert replication.n_unclear == 1


def test_only_whole_trials_that_are_not_clearly_worse_stay_and_not_too_many() -> None:
    best = outcome(0, {1: 0.90, 2: 0.91, 3: 0.89})
    near = [outcome(i, {1: 0.88, 2: 0.95, 3: 0.80 - i / 1000}) for i in range(1, 9)]
    far = outcome(50, {1: 0.50, 2: 0.51, 3: 0.49})
    lost = outcome(51, {1: 0.95, 2: 0.95, 3: 0.95}, failures={2: NAN})
    stopped = outcome(52, {1: 0.99, 2: 0.99, 3: 0.99}, Status.STOPPED)
    left = unclear([stopped, far, lost, *reversed(near), best], OBJECTIVE)
    assert left == [best, *near[: MOST_COMPARED - 1]]
    assert unclear([best, far], OBJECTIVE) == [best]
    assert unclear([lost, stopped], OBJECTIVE) == []


def test_seeds_are_new_in_every_round() -> None:
    known = [*TUNING, *REPORT]
    seeds = [seed for n_rounds in range(MOST_ROUNDS) for seed in new_seeds(known, n_rounds)]
    assert len(set(seeds)) == MOST_ROUNDS * SEEDS_A_ROUND
    assert not set(seeds) & set(known)
    assert new_seeds(known, 0) == (7, 8)
    assert new_seeds(known, 1) == (9, 10)


def test_a_replicate_that_fails_is_the_failure_of_its_seeds() -> None:
    more = Outcome(Trial({}, (7, 8), "replicate"), Result(Status.FAILED, NAN))
    pooled = together(outcome(0, {1: 0.9}, seconds=2.0), replace(more, seconds=0.5))
    assert pooled.seconds == 2.5
    assert pooled.failures == {7: NAN, 8: NAN}
    assert unclear([pooled], OBJECTIVE) == []
    result = Result(Status.FAILED, Failure(FailureKind.DIVERGED, "seed 7: ...; seed 8: ..."))
    told = replace(more, result=result, failures={7: Failure(FailureKind.RUNAWAY_KAPPA), 8: NAN})
    assert together(outcome(0, {1: 0.9}), told).failures == told.failures


SPACE = make(stages=(Stage("grid", {"loss.kappa_pos": (10, 20, 30, 40)}),), tuning_seeds=TUNING, report_seeds=REPORT)
Law = Callable[[float, int], float]  # kappa_pos, seed -> value


def searched(
    law: Law, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, space: SearchSpace = SPACE
) -> tuple[Finding, StudySpec, list[Trial]]:
    """A study whose trials are looked up; all that ran."""
    spec = StudySpec(
        "x", space.fingerprint(), "reference", "smoke", tuning_seeds=TUNING, report_seeds=REPORT, replicate="auto",
        method=Method(scheduler="asha"),
    )  # fmt: skip
    ran: list[Trial] = []

    def run_all(self: Search, trials: list[Trial], title: str) -> list[Outcome]:
        ran.extend(trials)
        found = []
        for trial in trials:
            values = {seed: {METRIC: law(float(trial.config["loss.kappa_pos"]), seed)} for seed in trial.seeds}
            found.append(Outcome(trial, Result(Status.FINISHED), values))
        return found

    monkeypatch.setattr(Search, "_run_all", run_all)
    nothing: Any = None
    choices, folder = Choices(InlineRunner(Resources())), StudyFolder(tmp_path / "s")
    interrupt = Interrupt()
    execution = Execution(space.objective, folder, nothing, nothing, choices, interrupt, lambda _: None)
    finding = Search(space, spec, execution, nothing, interrupt).run()
    write_all(folder, space, spec, finding)
    return finding, spec, ran


def test_a_clear_winner_needs_no_more_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    finding, _, ran = searched(lambda kappa, seed: kappa / 100 + seed, tmp_path, monkeypatch)
    assert not [trial for trial in ran if trial.stage == REPLICATE_STAGE]
    assert finding.best is not None
    assert finding.best.trial.varied == {"loss.kappa_pos": 40}
    assert replication_table("grid", finding.replications["grid"], SPACE) == ["grid: clear without more seeds"]


def test_seeds_are_added_where_it_is_not_clear_and_may_change_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the tuning seeds 20 is lucky; 30 is better in truth. 10 and 40 are clearly worse, and get no seed."""

    def law(kappa: float, seed: int) -> float:
        noise = random.Random(f"{kappa} {seed}").gauss(0, 0.005)
        truth = {10: 0.1, 20: 0.5, 30: 0.6, 40: 0.2}[int(kappa)]
        luck = {(20, 1): 0.3, (20, 2): 0.1}.get((int(kappa), seed), 0.0)
        return truth + luck + noise + seed

    finding, spec, ran = searched(law, tmp_path, monkeypatch)
    again = [trial for trial in ran if trial.stage == REPLICATE_STAGE]
    assert {trial.varied["loss.kappa_pos"] for trial in again} == {20.0, 30.0}
    assert not {seed for trial in again for seed in trial.seeds} & {*TUNING, *REPORT}
    assert finding.stages["grid"][0].trial.varied == {"loss.kappa_pos": 20}
    assert finding.best is not None
    assert finding.best.trial.varied == {"loss.kappa_pos": 30}
    assert finding.best.trial.seeds == TUNING  # best.yaml and the checkpoint are the tuning trial's
    replication = finding.replications["grid"]
    assert 1 <= replication.n_rounds <= MOST_ROUNDS
    assert len(finding.best.by_seed) == len(TUNING) + SEEDS_A_ROUND * replication.n_rounds
    # Report trials: the best first, by the replicated order.
    report = [trial.varied["loss.kappa_pos"] for trial in ran if trial.stage == REPORT_STAGE]
    assert report[:2] == [30.0, 20.0]
    lines = replication_table("grid", replication, SPACE)
    assert lines[1].endswith(f"{len(finding.best.by_seed)} seeds  kappa_pos=30.0")
    entry = json.loads(json.dumps(summary(SPACE, spec, finding)))["replication"]["grid"]
    assert entry["rounds"] == replication.n_rounds
    assert entry["compared"][0]["seeds"] == list(finding.best.by_seed)
    text = (tmp_path / "s" / "trials.csv").read_text()
    assert sum(f",{REPLICATE_STAGE}," in line for line in text.splitlines()) == SEEDS_A_ROUND * len(again)


def test_it_ends_where_two_are_equal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def law(kappa: float, seed: int) -> float:
        return (0.5 if kappa in (20, 30) else 0.1) + random.Random(f"{kappa} {seed}").gauss(0, 0.01)

    finding, _, ran = searched(law, tmp_path, monkeypatch)
    replication = finding.replications["grid"]
    assert replication.n_rounds == MOST_ROUNDS
    assert replication.n_unclear == 1
    again = [trial for trial in ran if trial.stage == REPLICATE_STAGE]
    assert len(again) == 2 * MOST_ROUNDS
    assert "1 not clearly worse" in replication_table("grid", replication, SPACE)[0]


def test_who_was_excluded_does_not_win_by_having_fewer_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are worse on later seeds: those with few of them have the better mean."""

    def law(kappa: float, seed: int) -> float:
        noise = random.Random(f"{kappa} {seed}").gauss(0, 0.02 if seed < 9 else 0.001)
        truth = {10: 0.1, 20: 0.58, 30: 0.6, 40: 0.601}[int(kappa)]
        return truth + noise - (0.3 if seed > 8 else 0.0)

    finding, _, _ = searched(law, tmp_path, monkeypatch)
    compared = finding.replications["grid"].compared
    counts = [len(found.by_seed) for found in compared]
    assert counts == sorted(counts, reverse=True)
    assert counts[-1] < counts[0]
    assert compared[-1].mean(METRIC) > compared[0].mean(METRIC)
    assert finding.best is compared[0]


def test_of_many_studies_the_true_best_is_lost_in_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The truth is 0.05 apart with a noise of 0.04 a seed, most of it common: found more often than without."""
    hits, plain = 0, 0
    for study in range(40):

        def law(kappa: float, seed: int, study: int = study) -> float:
            own = random.Random(f"{study} {kappa} {seed}").gauss(0, 0.04)
            common = random.Random(f"{study} {seed}").gauss(0, 0.2)
            return {10: 0.5, 20: 0.55, 30: 0.6, 40: 0.65}[int(kappa)] + own + common

        finding, _, _ = searched(law, tmp_path / str(study), monkeypatch)
        assert finding.best is not None
        hits += finding.best.trial.varied["loss.kappa_pos"] == 40
        plain += finding.stages["grid"][0].trial.varied["loss.kappa_pos"] == 40
    assert hits >= 38
    assert hits > plain


def test_the_spec_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, spec, _ = searched(lambda kappa, seed: kappa, tmp_path, monkeypatch)
    folder = StudyFolder(tmp_path / "s")
    (folder.path / "study.json").write_text(json.dumps(spec.as_json()))
    assert StudySpec.read(folder) == spec
    assert "replicate" in spec.difference(StudySpec("x", spec.fingerprint, "reference", "smoke", {}, TUNING, REPORT,
                                                    method=spec.method))  # fmt: skip


def test_the_interval_of_equal_differences_is_a_point() -> None:
    found = paired(outcome(0, {1: 0.5, 2: 0.25}), outcome(1, {1: 0.25, 2: 0.0}), OBJECTIVE)
    assert (found.mean, found.half_width) == (0.25, 0.0)
    assert found.is_clear
