"""Several objectives: fronts, their tables and plots."""

import dataclasses
import json
import math
import random
from pathlib import Path

import pytest

from pcl.config.failure import Failure, FailureKind
from pcl.studies.ledger.folders import Result, Status
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.report.figures import pareto
from pcl.studies.report.outputs import front_table, write_all
from pcl.studies.results.pareto import check_objectives, objective_of, pareto_front, with_objectives
from pcl.studies.results.selection import Outcome
from pcl.studies.search.stages import Finding
from pcl.studies.space.search_space import Mode, Objective
from pcl.studies.space.trial import Trial
from tests.support.searches import METRIC, OTHER, RANGED, Driver, kept, spec_of
from tests.support.spaces import make


class TestPareto:
    OBJECTIVES = (Objective(METRIC), Objective(OTHER, Mode.MIN), Objective("eval/kappa_mae", Mode.MIN))

    @pytest.mark.parametrize("n_objectives", [2, 3])
    @pytest.mark.parametrize("seed", range(5))
    def test_the_front_is_that_of_brute_force(self, n_objectives: int, seed: int) -> None:
        objectives, generator = self.OBJECTIVES[:n_objectives], random.Random(seed)
        metrics = [objective.metric for objective in objectives]
        outcomes = []
        for i in range(60):  # few values, so that some are equal
            values = {metric: float(generator.randint(0, 9)) for metric in metrics}
            trial = Trial({"i": i}, (1,), "grid", {"i": i})
            outcomes.append(Outcome(trial, Result(Status.FINISHED), {1: values}))

        def is_better(one: Outcome, other: Outcome) -> bool:
            gains = [
                (one.mean(o.metric) - other.mean(o.metric)) * (1 if o.mode is Mode.MAX else -1) for o in objectives
            ]
            return min(gains) >= 0 and max(gains) > 0

        expected = {o.trial.key for o in outcomes if not any(is_better(other, o) for other in outcomes)}
        front = pareto_front(outcomes, objectives)
        assert {outcome.trial.key for outcome in front} == expected
        firsts = [outcome.mean(METRIC) for outcome in front]
        assert firsts == sorted(firsts, reverse=True)

    def test_only_whole_trials_are_on_it(self) -> None:
        good = Outcome(Trial({}, (1,), "grid"), Result(Status.FINISHED), {1: {METRIC: 1.0, OTHER: 1.0}})
        others = [
            dataclasses.replace(good, trial=Trial({"i": 1}, (1,), "grid"), result=None),
            dataclasses.replace(good, trial=Trial({"i": 2}, (1,), "grid"), failures={1: Failure(FailureKind.NAN)}),
            dataclasses.replace(good, trial=Trial({"i": 3}, (1,), "grid"), by_seed={1: {METRIC: 2.0, OTHER: math.nan}}),
        ]
        assert pareto_front([*others, good], self.OBJECTIVES[:2]) == [good]
        assert pareto_front([*others, good, good], self.OBJECTIVES[:2]) == [good]  # of two stages

    def test_optuna_is_told_of_all_objectives(self, tmp_path: Path) -> None:
        spec = spec_of(RANGED, n=9, objectives=(METRIC, OTHER))
        driver = Driver(RANGED, spec, tmp_path / "s").run()
        study = driver.optuna()
        assert [direction.name for direction in study.directions] == ["MAXIMIZE", "MINIMIZE"]
        assert study.metric_names == [METRIC, OTHER]
        outcomes = [Outcome.of(trial, driver.folder.trial(trial.key)) for trial in driver.ran]
        front = pareto_front(outcomes, self.OBJECTIVES[:2])
        assert {o.trial.key for o in front} == {trial.user_attrs["trial"] for trial in study.best_trials}

        finding = Finding({"ranges": outcomes}, front[0], [], self.OBJECTIVES[:2], front)
        files = {file.name: file for file in write_all(driver.folder, RANGED, spec, finding)}
        assert files["pareto.png"].read_bytes().startswith(b"\x89PNG")
        content = json.loads(files["summary.json"].read_text())
        assert [entry["key"] for entry in content["pareto"]] == [outcome.trial.key for outcome in front]
        assert [entry["mode"] for entry in content["objectives"]] == ["max", "min"]
        assert f"the best by {METRIC}" in files["best.yaml"].read_text()
        assert len(front_table(finding)) == 1 + len(front)
        assert StudySpec.read(kept(driver.folder, spec)) == spec

    def test_three_objectives_are_drawn(self, tmp_path: Path) -> None:
        pareto([[1, 2, 3], [2, 1, 3]], [True, False], ["a", "b", "c"], tmp_path / "x.png")
        assert (tmp_path / "x.png").stat().st_size > 1000

    def test_modes(self) -> None:
        space = make()
        assert objective_of("eval/mu_rmse", space).mode is Mode.MIN
        assert objective_of("eval/spread_rank_corr", space).mode is Mode.MAX
        own = make(objective=Objective("eval/kappa_mean", Mode.MIN))
        assert objective_of("eval/kappa_mean", own).mode is Mode.MIN
        decided, objectives = with_objectives(space, ("eval/mu_mae", METRIC))
        assert decided.objective == objectives[0] == Objective("eval/mu_mae", Mode.MIN)
        assert with_objectives(space, ()) == (space, (space.objective,))
        check_objectives(("eval/mu_mae", METRIC), space)
        for wrong in ((METRIC, METRIC), (METRIC, "eval/nothing"), ("eval/kappa_mean",)):
            with pytest.raises(ValueError, match="`objectives`"):
                check_objectives(wrong, space)
