"""Random and Optuna searches: what they propose, again and again the same; killed, resumed, and warmly started."""

import dataclasses
import itertools
import json
import math
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from ray import tune

from launch.command import run
from launch.grid import main
from pcl.config import RunConfig
from pcl.studies.figures import pareto
from pcl.studies.ledger import Result, Row, Status, StudyFolder, Trial, TrialFolder
from pcl.studies.method import OPTUNA, RANDOM, Method, draws, n_trials_of, searched
from pcl.studies.objectives import objective_of, pareto_front, read_objectives, with_objectives
from pcl.studies.outputs import front_table, table, write_all
from pcl.studies.proposing import Proposer
from pcl.studies.ranges import Range, integers, log_uniform, uniform
from pcl.studies.runner import Interrupt, Resources
from pcl.studies.sampling import DATABASE
from pcl.studies.searching import Choices, Finding, Search
from pcl.studies.selection import Outcome
from pcl.studies.space import Mode, Objective, SearchSpace, Stage, load_space, negatives_axis
from pcl.studies.study import StudySpec
from tests.services import LONG, Home, check_records, home, summary_of, wait_for
from tests.test_spaces import make

METRIC, OTHER = "eval/kappa_rank_corr", "eval/mu_mae"
RANGES = {"training.lr": log_uniform(1e-4, 1e-2), "M": negatives_axis(0, 1, 4), "loss.n_samples": integers(1, 64)}
RANGED = make(stages=(Stage("ranges", RANGES),))
GRID = make(stages=(Stage("grid", {"M": negatives_axis(0, 1, 4), "loss.kappa_pos": tuple(range(10, 20))}),))
SMALL = make(stages=(Stage("grid", {"M": negatives_axis(0, 1, 4), "loss.kappa_pos": (11, 12, 13, 14)}),))
STAGED = make(stages=(Stage("one", {"loss.kappa_pos": (1, 2, 3)}), Stage("two", {"training.lr": uniform(0.1, 1)})))


def spec_of(space: SearchSpace, kind: str = OPTUNA, n: int = 12, seed: int = 0, **more: Any) -> StudySpec:
    sampler = {"sampler": more.pop("sampler", "tpe")} if kind == OPTUNA else {}
    method = Method(kind, (n,) * len(space.stages), seed, warm_start=more.pop("warm_start", ""), **sampler)
    return StudySpec("x", space.fingerprint(), "reference", "smoke", tuning_seeds=(1,), method=method, **more)


def end(folder: TrialFolder, trial: Trial, status: Status = Status.FINISHED) -> None:
    """As a worker would, in no time: a smooth function of the configuration."""
    lr, n = float(trial.config["training.lr"]), float(trial.config["loss.n_samples"])
    kappa_pos, n_negatives = float(trial.config["loss.kappa_pos"]), float(trial.config["training.n_negatives"])
    value = -((math.log10(lr) + 3) ** 2) - (n - 20) ** 2 / 1000 - (kappa_pos - 14) ** 2 / 100 - n_negatives / 1000
    folder.begin(trial)
    token = folder.claim()
    folder.publish(Row(8, 8, 1, 0.1, {1: {METRIC: value, OTHER: n / 64 + lr}}, {}), token)
    folder.end(Result(status, "" if status is Status.FINISHED else "worker died: killed"), token)


class Driver:
    """A study without Ray: proposals are run one after the other, or several at once."""

    def __init__(self, space: SearchSpace, spec: StudySpec, path: Path, stage: int = 0, **winner: Any) -> None:
        self.folder = StudyFolder(path)
        path.mkdir(parents=True, exist_ok=True)
        _, objectives = with_objectives(space, spec.objectives)
        self.known: list[str] = []
        self.ran: list[Trial] = []
        is_rerun = winner.pop("is_rerun", False)
        self.proposer = Proposer(
            space, spec, self.folder, stage, winner.get("winner", {}), objectives, lambda _: None,
            lambda folder: self.known.append(folder.key), is_rerun=is_rerun,
        )  # fmt: skip

    def run(self, n: int = 10**6, at_once: int = 1) -> "Driver":
        """Until `n` trials have ended, or there are no more."""
        running: list[Trial] = []
        while len(self.ran) < n:
            while len(running) < at_once and (trial := self.proposer.next()) is not None:
                assert trial not in running
                running.append(trial)
            if not running:
                break
            trial = running.pop(0)
            self.ran.append(trial)
            end(self.folder.trial(trial.key), trial)
        for trial in self.proposer.trials:
            self.proposer.ended(trial.key)
        return self

    @property
    def keys(self) -> list[str]:
        return [trial.key for trial in self.proposer.trials]

    def optuna(self, name: str = "") -> optuna.Study:
        url = f"sqlite:///{self.folder.path / DATABASE}"
        return optuna.load_study(study_name=name or self.folder.name, storage=url)


class TestRanges:
    @pytest.mark.parametrize(
        "axis", [uniform(-1, 2.5), log_uniform(1e-5, 1e-3), integers(1, 3), Range(1, 9, True, True)]
    )
    def test_draws_are_inside_and_reach_everywhere(self, axis: Range) -> None:
        generator = random.Random(0)
        drawn = [axis.draw(generator) for _ in range(2000)]
        assert all(axis.is_valid(number) for number in drawn)
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


class TestOptuna:
    @pytest.mark.parametrize(("sampler", "n"), [("tpe", 18), ("gp", 6)])
    def test_proposals_are_possible_reproducible_and_get_better(self, tmp_path: Path, sampler: str, n: int) -> None:
        first, again = (
            Driver(RANGED, spec_of(RANGED, n=n, sampler=sampler), tmp_path / name).run() for name in ("a", "b")
        )
        other = Driver(RANGED, spec_of(RANGED, n=n, sampler=sampler, seed=1), tmp_path / "c").run(2)
        assert first.keys == again.keys
        assert len(set(first.keys)) == len(first.ran) == n
        assert not set(first.keys) & set(other.keys)
        for trial in first.ran:
            assert RunConfig.from_flat(trial.config).flat() == trial.config
        study = first.optuna()
        assert set(study.trials[0].params) == set(RANGES)
        assert [trial.user_attrs["trial"] for trial in study.trials] == first.keys
        assert study.best_value == max(Outcome.of(t, first.folder.trial(t.key)).mean(METRIC) for t in first.ran)
        values = [trial.values[0] for trial in study.trials]
        assert max(values[n // 3 :]) > max(values[: n // 3])

    def test_a_driver_that_is_killed_again_and_again_goes_on_as_if_nothing_had_been(self, tmp_path: Path) -> None:
        """One trial at once: it proposes what an undisturbed one does, and runs nothing twice."""
        expected = Driver(RANGED, spec_of(RANGED), tmp_path / "calm").run()
        ran: list[Trial] = []
        for n in (0, 1, 4, 5):
            killed = Driver(RANGED, spec_of(RANGED), tmp_path / "s").run(n)
            running = killed.proposer.next()  # never ends
            assert running == expected.ran[len(ran) + n]
            ran += killed.ran
        last = Driver(RANGED, spec_of(RANGED), tmp_path / "s").run()
        assert ran + last.ran == expected.ran
        assert last.keys == expected.keys
        assert [trial.state.name for trial in last.optuna().trials] == ["COMPLETE"] * 12

    def test_what_ended_while_no_driver_looked_is_told(self, tmp_path: Path) -> None:
        """Three at once are killed: one had ended, one had not begun, one is half asked."""
        before = Driver(RANGED, spec_of(RANGED), tmp_path / "s").run(4)
        ended, begun = before.proposer.next(), before.proposer.next()
        assert ended is not None
        assert begun is not None
        end(before.folder.trial(ended.key), ended)
        before.optuna().ask()
        after = Driver(RANGED, spec_of(RANGED), tmp_path / "s").run(at_once=3)
        assert after.ran[0] == begun
        assert ended not in after.ran
        assert len(set(after.keys)) == len(after.keys) == 12
        states = [trial.state.name for trial in after.optuna().trials]
        assert sorted(states) == ["COMPLETE"] * 12 + ["FAIL"]

    def test_a_lost_database_is_made_again_from_the_folders(self, tmp_path: Path) -> None:
        before = Driver(RANGED, spec_of(RANGED), tmp_path / "s").run(7)
        (tmp_path / "s" / DATABASE).unlink()
        after = Driver(RANGED, spec_of(RANGED), tmp_path / "s").run()
        assert len(after.ran) == 5
        assert set(before.keys[:7]) <= set(after.keys)
        assert len(after.optuna().trials) == len(after.keys) == 12

    def test_failures_are_told_and_lost_workers_run_again(self, tmp_path: Path) -> None:
        driver = Driver(RANGED, spec_of(RANGED, n=3), tmp_path / "s")
        failed = driver.proposer.next()
        assert failed is not None
        end(driver.folder.trial(failed.key), failed, Status.FAILED)
        assert len(driver.run().ran) == 2
        assert [trial.state.name for trial in driver.optuna().trials] == ["FAIL", "COMPLETE", "COMPLETE"]
        again = Driver(RANGED, spec_of(RANGED, n=3), tmp_path / "s").run()
        assert again.ran == [failed]
        states = [trial.state.name for trial in again.optuna().trials]
        assert states == ["FAIL", "COMPLETE", "COMPLETE", "COMPLETE"]
        assert not Driver(RANGED, spec_of(RANGED, n=3), tmp_path / "s").run().ran

    def test_a_small_space_is_used_up_without_repeats(self, tmp_path: Path) -> None:
        """All 12 cells, three at once: the sampler repeats itself, what it repeats is told and not run."""
        driver = Driver(SMALL, spec_of(SMALL, n=12), tmp_path / "s").run(at_once=3)
        assert len(driver.ran) == len(set(driver.keys)) == 12
        assert len(driver.optuna().trials) > 12
        told: dict[str, set[float]] = {}
        for trial in driver.optuna().trials:
            told.setdefault(trial.user_attrs["trial"], set()).add(trial.values[0])
        assert all(len(values) == 1 for values in told.values())
        larger = Driver(SMALL, spec_of(SMALL, n=15), tmp_path / "s")  # more than there are
        assert not larger.proposer.has_next()
        assert larger.proposer.n_trials == 12

    def test_known_results_are_told_at_once(self, tmp_path: Path) -> None:
        spec, folder = spec_of(RANGED, n=6), StudyFolder(tmp_path / "s")
        expected = Driver(RANGED, spec, tmp_path / "calm").run()
        for trial in expected.ran[:3]:  # as `reuse` finds them in MLflow, but before Optuna knows of them
            (tmp_path / "s" / "trials").mkdir(parents=True, exist_ok=True)
            end(folder.trial(trial.key), dataclasses.replace(trial, stage="elsewhere"))
        driver = Driver(RANGED, spec, tmp_path / "s").run()
        assert driver.keys == expected.keys
        assert driver.known == expected.keys[:3]
        assert [trial.key for trial in driver.ran] == expected.keys[3:]

    def test_rerun_begins_anew(self, tmp_path: Path) -> None:
        first = Driver(RANGED, spec_of(RANGED, n=5), tmp_path / "s").run()
        again = Driver(RANGED, spec_of(RANGED, n=5), tmp_path / "s", is_rerun=True).run()
        assert [trial.key for trial in again.ran] == first.keys
        assert len(again.optuna().trials) == 5

    def test_a_second_stage_belongs_to_the_first_ones_winner(self, tmp_path: Path) -> None:
        spec = spec_of(STAGED, n=4)
        names = [f"s: {stage.name}" for stage in STAGED.stages]
        for kappa_pos in (2.0, 3.0):
            driver = Driver(STAGED, spec, tmp_path / "s", 1, winner={"loss.kappa_pos": kappa_pos}).run()
            assert len(driver.ran) == 4
            assert {trial.config["loss.kappa_pos"] for trial in driver.ran} == {kappa_pos}
            assert len(driver.optuna(names[1]).trials) == 4
        assert Driver(STAGED, spec, tmp_path / "s").run().optuna(names[0]).user_attrs == {"winner": {}}

    def test_a_damaged_database_is_an_os_error(self, tmp_path: Path) -> None:
        (tmp_path / "s").mkdir()
        (tmp_path / "s" / DATABASE).write_text("no database")
        with pytest.raises(OSError, match=r"optuna\.db cannot be used"):
            Driver(RANGED, spec_of(RANGED), tmp_path / "s")


@pytest.mark.parametrize("kind", [RANDOM, "grid"])
def test_a_later_stage_that_finds_nothing_better_does_not_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Of a search in part: the whole grid of a stage has the earlier winner among its cells, or is meant not to."""
    space = make(stages=(Stage("one", {"loss.kappa_pos": (1, 2, 3)}), Stage("two", {"training.lr": (0.1, 0.2)})))
    nothing: Any = None
    choices = Choices(Resources(), is_finalized=True)
    spec = spec_of(space, kind, 2)
    search = Search(space, spec, StudyFolder(tmp_path), nothing, nothing, choices, Interrupt(), print)

    def run_all(trials: list[Trial], title: str) -> list[Outcome]:
        worse = [float(trial.config["loss.kappa_pos"]) - 9 * ("training.lr" in trial.varied) for trial in trials]
        return [
            Outcome(t, Result(Status.FINISHED), {1: {METRIC: value}}) for t, value in zip(trials, worse, strict=True)
        ]

    monkeypatch.setattr(search, "_run_all", run_all)
    finding = search.run()
    assert finding.best is not None
    first = finding.stages["one"][0].trial
    assert (finding.best.trial == first) == (kind == RANDOM)
    assert len({outcome.trial.key for outcome in finding.report}) == len(finding.report) == 2 + (kind == RANDOM)
    assert len(table(finding.report, space)) == 1 + len(finding.report)


class TestWarmStart:
    def test_it_begins_with_what_is_known(self, tmp_path: Path) -> None:
        grid = StudyFolder(tmp_path / "grid")
        trials = spec_of(GRID, "grid", 0).trials(GRID, 0, {})
        for trial in trials[:20]:
            end(grid.trial(trial.key), trial)
        end(grid.trial(trials[20].key), trials[20], Status.FAILED)
        spec = spec_of(GRID, n=5, warm_start="grid")
        driver = Driver(GRID, spec, tmp_path / "s")
        assert driver.proposer.n_trials == 25
        driver.run(2)
        driver = Driver(GRID, spec, tmp_path / "s").run()  # resumed: nothing is added twice
        assert len(driver.ran) == 3
        assert len(set(driver.keys)) == 25
        assert not {trial.key for trial in trials[:20]} & {trial.key for trial in driver.ran}
        warm = [t for t in driver.optuna().trials if t.user_attrs.get("warm") == "grid"]
        assert len(warm) == 20
        result = driver.folder.trial(trials[0].key).result()
        assert result is not None
        assert result.reused_from == "grid"
        # The grid's better half is known: the very first proposal profits from it.
        cold = Driver(GRID, spec_of(GRID, n=5), tmp_path / "cold").run()
        assert warm[0].values == [Outcome.of(trials[0], grid.trial(trials[0].key)).mean(METRIC)]
        assert cold.keys != driver.keys[20:]


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
            dataclasses.replace(good, trial=Trial({"i": 2}, (1,), "grid"), failures={1: "NaN"}),
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
        assert StudySpec.read(_kept(driver.folder, spec)) == spec

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
        assert read_objectives("", space) == ()


def _kept(folder: StudyFolder, spec: StudySpec) -> StudyFolder:
    (folder.path / "study.json").write_text(json.dumps(spec.as_json()))
    return folder


BAD_INPUT = {
    "ranges as grid": (["--space", "{ranged}"], "has ranges, of which there is no grid: take `--search random`"),
    "trials of a grid": (["--space", "toy_elk", "--trials", "3"], "`--trials` goes with `--search random` or"),
    "seed of a grid": (["--space", "toy_elk", "--search-seed", "3"], "`--search-seed` goes with"),
    "negative seed": (["--space", "toy_elk", "--search", "random", "--search-seed", "-3"], "at least 0, but got -3"),
    "sampler": (["--space", "toy_elk", "--search", "random", "--sampler", "gp"], "`--sampler` goes with `--search opt"),
    "warm random": (["--space", "toy_elk", "--search", "random", "--warm-start", "s"], "`--warm-start` goes with"),
    "no such study": (["--space", "toy_elk", "--search", "optuna", "--warm-start", "s"], "There is no study 's' in"),
    "objective": (["--space", "toy_elk", "--objectives", "val/recall_at_1"], "`--objectives` takes some of eval/"),
    "twice": (["--space", "toy_elk", "--objectives", f"{METRIC},{METRIC}"], "every metric once"),
    "no better end": (["--space", "toy_elk", "--objectives", "eval/kappa_mean"], "neither end of it is the better"),
    "resumed": (["--resume", "s", "--search-seed", "0", "--trials", "3"], "leave out --trials, --search-seed"),
    "normal": (["--space", "{normal}", "--search", "optuna"], "the axis 'loss.kappa_pos' must be uniform"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_in_one_sentence_and_makes_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments, message = BAD_INPUT[case]
    files = {name: tmp_path / f"{name}.py" for name in ("ranged", "normal")}
    head = "from ray import tune\nfrom pcl.studies.space import SearchSpace, Stage, uniform\n"
    for name, axis in (("ranged", "uniform(1, 9)"), ("normal", "tune.randn(50, 1)")):
        axes = f"{{'loss.kappa_pos': {axis}}}"
        files[name].write_text(f"{head}SPACE = SearchSpace('{name}', 'elk', (Stage('s', {axes}),))\n")
    words = [word.format(**files) for word in arguments]
    assert_refused([*words, "--storage", str(tmp_path / "runs")], message, monkeypatch, capsys)
    assert not (tmp_path / "runs").exists()


def assert_refused(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["launch/grid.py", *words])
    with pytest.raises(SystemExit) as ended:
        run(main)
    told = capsys.readouterr()
    assert ended.value.code == 2
    assert message in told.err
    assert len(told.err.splitlines()) == 1
    assert not told.out


def test_a_warm_start_of_something_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another space, other objectives, another scale, and nothing finished."""
    space = load_space("toy_elk")
    fine = StudySpec("toy_elk", space.fingerprint(), "reference", "smoke", tuning_seeds=(1,))
    studies = {
        "space": (dataclasses.replace(fine, fingerprint="other"), "content of the space: 'other' there"),
        "objectives": (dataclasses.replace(fine, objectives=(OTHER,)), "objectives: ['eval/mu_mae'] there, [] here"),
        "scale": (dataclasses.replace(fine, scale="quick"), "scale: 'quick' there, 'smoke' here"),
        "empty": (fine, "takes a study with finished trials, but 'empty' has none"),
    }
    for name, (spec, message) in studies.items():
        (tmp_path / name).mkdir()
        _kept(StudyFolder(tmp_path / name), spec)
        words = ["--space", "toy_elk", "--scale", "smoke", "--search", "optuna", "--warm-start", name]
        assert_refused([*words, "--storage", str(tmp_path)], message, monkeypatch, capsys)


@pytest.fixture
def place() -> Iterator[Home]:
    with home() as found:
        yield found


def test_a_killed_optuna_search_goes_on(place: Home) -> None:
    """With Ray and MLflow: one at once, killed and resumed, it has the trials that it would have had."""
    space = place.space("ranged", {"all": {"training.lr": "LR", "loss.n_samples": [2, 4]}}, LONG)
    text = space.read_text().replace("'LR'", "log_uniform(1e-4, 1e-2)")
    space.write_text(text.replace("import SearchSpace", "import log_uniform, SearchSpace"))
    options = ["--space", space, "--scale", "smoke", "--search", "optuna"]
    grid = place.start(*options, "--trials", "4", "--name", "s", "--max-concurrent", "1")
    folder = place.study("s")
    wait_for(lambda: any(trial.result() for trial in folder.trials()), "a trial has ended")
    wait_for(lambda: any(t.rows() and t.result() is None for t in folder.trials()), "another has reports")
    grid.kill()
    wait_for(lambda: not place.workers(), "the workers follow their driver", 30)
    before = {trial.key: trial.result() for trial in folder.trials() if trial.result()}
    begun = {trial.key for trial in folder.trials()}
    assert 1 <= len(before) < len(begun) < 4
    place.run("--resume", "s", "--max-concurrent", "1")
    check_records(folder, place.storage)
    assert all(folder.trial(key).result() == result for key, result in before.items())
    study = optuna.load_study(study_name="s", storage=f"sqlite:///{folder.path / DATABASE}")
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 4
    found = summary_of(folder)
    assert study.best_value == found["best"]["mean"][METRIC]

    # Undisturbed, in this process, it would have proposed the same.
    spec = StudySpec.read(folder)
    calm = Driver(load_space(str(space)), spec, place.path / "calm" / "s")
    while (trial := calm.proposer.next()) is not None:
        shutil.copytree(folder.trial(trial.key).path, calm.folder.trial(trial.key).path, dirs_exist_ok=True)
    assert calm.keys == [trial.user_attrs["trial"] for trial in study.trials]

    # Its trials are the beginning of another search, two at once.
    warm = place.run(*options, "--trials", "2", "--name", "warm", "--warm-start", "s", "--objectives", METRIC, code=2)
    assert "is another one (objectives" in warm.errors
    warm = place.run(*options, "--trials", "2", "--name", "warm", "--warm-start", "s")
    assert "(6 trials, 4 known)" in warm.said
    assert len(summary_of(place.study("warm"))["stages"]["all"]) == 6
    check_records(place.study("warm"), place.storage)
