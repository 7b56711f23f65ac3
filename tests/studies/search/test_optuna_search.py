"""Optuna searches: what they propose, again and again the same; killed, resumed, and warmly started."""

import dataclasses
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pcl.config.run_config import RunConfig
from pcl.storage.mirror import Mirrored
from pcl.studies.execution.inline_runner import InlineRunner
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.resources import Resources
from pcl.studies.execution.trial_execution import Choices, Execution
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.report.outputs import table
from pcl.studies.results.selection import Outcome
from pcl.studies.search.optuna_study import DATABASE
from pcl.studies.search.stages import Search
from pcl.studies.space.ranges import log_uniform
from pcl.studies.space.search_method import RANDOM
from pcl.studies.space.search_space import Stage
from pcl.studies.space.trial import Trial
from tests.support.searches import GRID, METRIC, RANGED, RANGES, SMALL, STAGED, Driver, end, spec_of
from tests.support.spaces import make


class TestOptuna:
    @pytest.mark.parametrize(("sampler", "n"), [("tpe", 12), ("gp", 6)])
    def test_proposals_are_possible_reproducible_and_get_better(self, tmp_path: Path, sampler: str, n: int) -> None:
        first = Driver(RANGED, spec_of(RANGED, n=n, sampler=sampler), tmp_path / "a").run()
        again = Driver(RANGED, spec_of(RANGED, n=n, sampler=sampler), tmp_path / "b").run(n // 2)
        other = Driver(RANGED, spec_of(RANGED, n=n, sampler=sampler, seed=1), tmp_path / "c").run(2)
        assert first.keys[: n // 2] == again.keys  # of which the sampler proposes some: it begins after a third of all
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
        spec = spec_of(RANGED, n=7)
        expected = Driver(RANGED, spec, tmp_path / "calm").run()
        ran: list[Trial] = []
        for n in (0, 1, 3, 2):
            killed = Driver(RANGED, spec, tmp_path / "s").run(n)
            running = killed.proposer.next()  # never ends
            assert running == expected.ran[len(ran) + n]
            ran += killed.ran
        last = Driver(RANGED, spec, tmp_path / "s").run()
        assert ran + last.ran == expected.ran
        assert last.keys == expected.keys
        assert [trial.state.name for trial in last.optuna().trials] == ["COMPLETE"] * 7

    def test_what_ended_while_no_driver_looked_is_told(self, tmp_path: Path) -> None:
        """Three at once are killed: one had ended, one had not begun, one is half asked."""
        before = Driver(RANGED, spec_of(RANGED, n=7), tmp_path / "s").run(3)
        ended, begun = before.proposer.next(), before.proposer.next()
        assert ended is not None
        assert begun is not None
        end(before.folder.trial(ended.key), ended)
        before.optuna().ask()
        after = Driver(RANGED, spec_of(RANGED, n=7), tmp_path / "s").run(at_once=3)
        assert after.ran[0] == begun
        assert ended not in after.ran
        assert len(set(after.keys)) == len(after.keys) == 7
        states = [trial.state.name for trial in after.optuna().trials]
        assert sorted(states) == ["COMPLETE"] * 7 + ["FAIL"]

    def test_a_lost_database_is_made_again_from_the_folders(self, tmp_path: Path) -> None:
        before = Driver(RANGED, spec_of(RANGED, n=7), tmp_path / "s").run(4)
        (tmp_path / "s" / DATABASE).unlink()
        after = Driver(RANGED, spec_of(RANGED, n=7), tmp_path / "s").run()
        assert len(after.ran) == 3
        assert set(before.keys[:4]) <= set(after.keys)
        assert len(after.optuna().trials) == len(after.keys) == 7

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

    def test_a_sampler_learns_from_failures(self, tmp_path: Path) -> None:
        """Those beside the best would be proposed again and again: 11 of 16 failed where nothing was learned."""
        space = make(stages=(Stage("rates", {"training.lr": log_uniform(1e-4, 1e-2)}),))
        driver = Driver(space, spec_of(space, n=16), tmp_path / "s")
        n_failed = 0
        while (trial := driver.proposer.next()) is not None:
            has_failed = float(trial.config["training.lr"]) > 5e-4
            n_failed += has_failed
            end(driver.folder.trial(trial.key), trial, Status.FAILED if has_failed else Status.FINISHED)
        assert 1 <= n_failed <= 9
        assert [trial.state.name for trial in driver.optuna().trials].count("FAIL") == n_failed

    def test_a_small_space_is_used_up_without_repeats(self, tmp_path: Path) -> None:
        """All 6 cells, three at once: the sampler repeats itself, what it repeats is told and not run."""
        driver = Driver(SMALL, spec_of(SMALL, n=6), tmp_path / "s").run(at_once=3)
        assert len(driver.ran) == len(set(driver.keys)) == 6
        assert len(driver.optuna().trials) > 6
        told: dict[str, set[float]] = {}
        for trial in driver.optuna().trials:
            told.setdefault(trial.user_attrs["trial"], set()).add(trial.values[0])
        assert all(len(values) == 1 for values in told.values())
        larger = Driver(SMALL, spec_of(SMALL, n=9), tmp_path / "s")  # more than there are
        assert not larger.proposer.has_next()
        assert larger.proposer.n_trials == 6

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

    def test_a_search_in_a_store_goes_on_elsewhere(self, tmp_path: Path) -> None:
        """Also with the trial that had just been proposed when the driver died: the store knows of it."""
        spec, uri = spec_of(RANGED, n=6), (tmp_path / "store" / "s").as_uri()
        expected = Driver(RANGED, spec, tmp_path / "calm").run()
        one, two = (Mirrored(tmp_path / name / "s", uri) for name in ("one", "two"))
        first = Driver(RANGED, spec, one.path, mirror=one).run(3)
        proposed = first.proposer.next()
        StudyFolder(two.path, two).pull()
        second = Driver(RANGED, spec, two.path, mirror=two).run()
        assert second.keys == expected.keys
        assert second.ran[0] == proposed
        assert len(second.ran) == 3
        assert len(second.optuna().trials) == 6
        warm = spec_of(RANGED, n=1, warm_start="s")
        beside = Mirrored(tmp_path / "three" / "t", (tmp_path / "store" / "t").as_uri())
        assert set(expected.keys) < set(Driver(RANGED, warm, beside.path, mirror=beside).run().keys)

    def test_rerun_begins_anew(self, tmp_path: Path) -> None:
        first = Driver(RANGED, spec_of(RANGED, n=5), tmp_path / "s").run()
        again = Driver(RANGED, spec_of(RANGED, n=5), tmp_path / "s", is_rerun=True).run()
        assert [trial.key for trial in again.ran] == first.keys
        assert len(again.optuna().trials) == 5

    def test_a_second_stage_belongs_to_the_first_ones_winner(self, tmp_path: Path) -> None:
        spec = spec_of(STAGED, n=2)
        names = [f"s: {stage.name}" for stage in STAGED.stages]
        for kappa_pos in (2.0, 3.0):
            driver = Driver(STAGED, spec, tmp_path / "s", 1, winner={"loss.kappa_pos": kappa_pos}).run()
            assert len(driver.ran) == 2
            assert {trial.config["loss.kappa_pos"] for trial in driver.ran} == {kappa_pos}
            assert len(driver.optuna(names[1]).trials) == 2
        assert Driver(STAGED, spec, tmp_path / "s").run().optuna(names[0]).user_attrs == {"winner": {}}

    @pytest.mark.parametrize("damage", [lambda _: b"no database", lambda content: content[:5000] + bytes(9000)])
    def test_a_damaged_database_is_set_aside_and_made_again_from_the_folders(
        self, tmp_path: Path, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
    ) -> None:
        """A store has the damaged one too: what it lacks would be removed here by the next pull."""
        mirror = Mirrored(tmp_path / "s", (tmp_path / "store" / "s").as_uri())
        before = Driver(RANGED, spec_of(RANGED, n=6), mirror.path, mirror=mirror).run(4)
        path = tmp_path / "s" / DATABASE
        path.write_bytes(damaged := damage(path.read_bytes()))
        after = Driver(RANGED, spec_of(RANGED, n=6), mirror.path, mirror=mirror).run()
        assert set(before.keys) <= set(after.keys)
        assert len(after.ran) == 2
        assert len(after.optuna().trials) == len(after.keys) == 6
        (aside,) = (tmp_path / "s").glob(f"{DATABASE}.damaged-*")
        assert aside.read_bytes() == (tmp_path / "store" / "s" / aside.name).read_bytes() == damaged
        (told,) = capsys.readouterr().err.splitlines()
        assert aside.name in told

    def test_a_database_that_is_locked_is_an_os_error_and_stays(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Driver(RANGED, spec_of(RANGED), tmp_path / "s")
        monkeypatch.setattr("pcl.storage.sqlite_files.PATIENCE_S", 0.01)
        with closing(sqlite3.connect(tmp_path / "s" / DATABASE)) as other:
            other.execute("begin exclusive")
            with pytest.raises(OSError, match=r"optuna\.db cannot be used \(database is locked"):
                Driver(RANGED, spec_of(RANGED), tmp_path / "s")
        assert [path.name for path in (tmp_path / "s").glob(f"{DATABASE}*")] == [DATABASE]


@pytest.mark.parametrize("kind", [RANDOM, "grid"])
def test_a_later_stage_that_finds_nothing_better_does_not_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Of a search in part: the whole grid of a stage has the earlier winner among its cells, or is meant not to."""
    space = make(stages=(Stage("one", {"loss.kappa_pos": (1, 2, 3)}), Stage("two", {"training.lr": (0.1, 0.2)})))
    nothing: Any = None
    choices = Choices(InlineRunner(Resources()), is_finalized=True)
    spec = spec_of(space, kind, 2)
    interrupt, folder = Interrupt(), StudyFolder(tmp_path)
    execution = Execution(space.objective, folder, nothing, nothing, choices, interrupt, print)
    search = Search(space, spec, execution, nothing, interrupt)

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
        for trial in trials[:10]:
            end(grid.trial(trial.key), trial)
        end(grid.trial(trials[10].key), trials[10], Status.FAILED)
        spec = spec_of(GRID, n=3, warm_start="grid")
        driver = Driver(GRID, spec, tmp_path / "s")
        assert driver.proposer.n_trials == 13
        driver.run(1)
        driver = Driver(GRID, spec, tmp_path / "s").run()  # resumed: nothing is added twice
        assert len(driver.ran) == 2
        assert len(set(driver.keys)) == 13
        assert not {trial.key for trial in trials[:10]} & {trial.key for trial in driver.ran}
        warm = [t for t in driver.optuna().trials if t.user_attrs.get("warm") == "grid"]
        assert len(warm) == 10
        result = driver.folder.trial(trials[0].key).result()
        assert result is not None
        assert result.reused_from == "grid"
        # Part of the grid is known: proposals differ from those of a search that begins with nothing.
        cold = Driver(GRID, spec_of(GRID, n=3), tmp_path / "cold").run()
        assert warm[0].values == [Outcome.of(trials[0], grid.trial(trials[0].key)).mean(METRIC)]
        assert cold.keys != driver.keys[10:]
