"""When a study will have ended, as is told before and while it runs: by work, not by the number of trials."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launch.reproduce import main
from launch.reproduction.cells import Cells, Setting, studies_of
from pcl.config.run_config import RunConfig
from pcl.studies.execution import progress
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.progress import Progress
from pcl.studies.execution.resources import Cost
from pcl.studies.ledger.folders import Result, Row, Status, StudyFolder
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.paper.published import published_tables
from pcl.studies.space.ablation import load_ablation
from pcl.studies.space.trial import Trial
from pcl.studies.space.workload import work_of
from tests.support.smoke import smoke

# What a probe reckons for the cells of fig:encoder_size by D', at `quick`, three seeds, on one ARM core.
SECONDS = {4: 31, 8: 36, 10: 39, 16: 48, 32: 103, 64: 290, 128: 967}
NOTHING: Any = SimpleNamespace(submit=lambda _: None, set=lambda *_, **__: None, errors={})


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    found = [0.0]
    monkeypatch.setattr(progress, "time", SimpleNamespace(perf_counter=lambda: found[0]))
    return found


def progress_of(trials: list[Trial], n_trials: int, objective: Any, is_on_gpu: bool = False) -> Progress:
    return Progress(trials, n_trials, [], objective, NOTHING, Interrupt(), False, lambda _: None, NOTHING, is_on_gpu)


def eta(told: Progress) -> float:
    return in_seconds(told.line().rpartition("ETA ")[2])


def in_seconds(text: str) -> float:
    return float(sum(60**place * int(part) for place, part in enumerate(reversed(text.split(":")))))


def test_wide_networks_are_reckoned_with(tmp_path: Path, clock: list[float]) -> None:
    """They are trained last."""
    table = next(table for table in published_tables() if table.name == "fig:encoder_size")
    setting = Setting("reference", "quick", (4, 5, 6))
    (study,) = studies_of(list(Cells.of([table], setting).trials.values()), setting, Storage(tmp_path))
    trials = study.strategy.trials
    told = progress_of(trials, len(trials), study.strategy.objective)
    assert told.line().endswith("ETA ?")
    left = sum(SECONDS.values())
    for trial in trials:
        folder, seconds = study.folder.trial(trial.key), SECONDS[int(str(trial.config["encoder.dim"]))]
        folder.begin(trial)
        told.started(folder)
        for share in (1, 2):
            clock[0] += seconds / 2
            left -= seconds / 2
            told.reported(folder, share, 2, 0.0)
            assert left / 2 <= eta(told) <= 2 * left
        folder.close(Result(Status.FINISHED))
        told.ended(folder)
        assert left / 2 <= eta(told) <= 2 * left
    assert left == 0


def test_a_plan_tells_how_long_the_cells_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probed: list[Trial] = []

    def costs(trials: list[Trial], *_: object) -> list[Cost]:
        probed.extend(trials)
        return [Cost(0.0, SECONDS[16], 1)]

    monkeypatch.setattr("pcl.studies.session.site.costs_of", costs)
    words = ["--figure", "encoder_size", "--scale", "quick", "--plan", "--storage", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["reproduce.py", *words, "--max-concurrent", "1"])
    main()
    assert [trial.config["encoder.dim"] for trial in probed] == [16]
    told = capsys.readouterr().out
    found = re.search(r"estimated: (.*) to .* for 7 cells of the controlled experiment \(probe of 1, ", told)
    assert found, told
    assert sum(SECONDS.values()) / 2 <= in_seconds(found[1]) <= 2 * sum(SECONDS.values())


def test_trials_that_are_not_known_of_count_alike(tmp_path: Path, clock: list[float]) -> None:
    objective: Any = SimpleNamespace(metric="eval/kappa_rank_corr", mode=None)
    told = progress_of([], 4, objective)
    folder = StudyFolder(tmp_path / "s").trial("a")
    told.started(folder)
    told.reported(folder, 1, 2, 0.0)
    clock[0] = 10.0
    assert eta(told) == 70


def test_what_was_done_before_a_study_was_resumed_took_no_time_here(tmp_path: Path, clock: list[float]) -> None:
    objective: Any = SimpleNamespace(metric="eval/kappa_rank_corr", mode=None)
    study = StudyFolder(tmp_path / "s")
    old, new = (Trial({**smoke().flat(), "loss.kappa_pos": kappa}, (4,), "grid") for kappa in (5.0, 6.0))
    told = progress_of([old, new], 2, objective)
    folder = study.trial(old.key)
    folder.publish(Row(6, 8, 1, 0.5, {4: {"eval/kappa_rank_corr": 0.5}}, {}), folder.take(old))
    told.started(folder)
    assert "1 running (75%)" in told.line()
    assert told.line().endswith("ETA ?")
    clock[0] = 10.0
    told.reported(folder, 7, 8, 0.5)
    assert eta(told) == 10 + 80  # an eighth takes 10 s
    told.restarted(folder)
    told.started(folder)  # from its report of batch 6
    assert told.line().endswith("ETA ?")
    clock[0] = 30.0
    folder.close(Result(Status.FINISHED))
    told.ended(folder)
    assert eta(told) == 120


def test_trials_of_one_batch_tell_little_about_long_ones(tmp_path: Path, clock: list[float]) -> None:
    """On an H200, four at a time, the ablation's three classifiers ended within 10 s, MCInfoNCE after 58."""
    cells = load_ablation("uncertainty_baselines").cells("exact", "paper", (4, 5, 6, 7, 8), {"task.data": "embedded"})
    long, *short = cells.trials.values()
    assert len(short) == 3
    objective: Any = SimpleNamespace(metric="test/crop_rank_corr", mode=None)
    told = progress_of([long, *short], 4, objective, is_on_gpu=True)
    clock[0] = 10.0
    for trial in short:
        folder = StudyFolder(tmp_path / "s").trial(trial.key)
        folder.begin(trial)
        folder.close(Result(Status.FINISHED))
        told.ended(folder)
    assert 48 / 2 < eta(told) < 48 * 2


def test_reports_that_cannot_be_read_end_no_study(tmp_path: Path, clock: list[float]) -> None:
    objective: Any = SimpleNamespace(metric="eval/kappa_rank_corr", mode=None)
    trial = Trial(smoke().flat(), (4,), "grid")
    folder = StudyFolder(tmp_path / "s").trial(trial.key)
    folder.begin(trial)
    (folder.path / "reports.json").write_text("{")
    told = progress_of([trial], 1, objective)
    told.started(folder)
    assert "1 running (0%)" in told.line()


@pytest.mark.parametrize(
    "config",
    [
        smoke(),
        RunConfig.of({"encoder.dim": 12, "encoder.kappa_width": "as_mu"}, scale="quick"),
        RunConfig.of({"encoder.dim": 4}),
        RunConfig.of({"task.data": "embedded"}, scale="smoke", task="images"),
        RunConfig.of({"task.data": "embedded"}, scale="quick", task="images"),
    ],
)
def test_weights_are_counted_without_a_network(config: RunConfig) -> None:
    trial = Trial(config.flat(), (4,), "grid")
    encoder = config.encoder.build_for(config.task.inputs, (4,))
    weights = sum(parameter.numel() for parameter in encoder.parameters())
    assert config.encoder.n_weights(config.task.inputs) == pytest.approx(weights, rel=0.1)
    assert work_of(Trial(config.flat(), (4, 5), "grid"), False) > work_of(trial, False)


def test_wide_networks_on_a_gpu() -> None:
    """Five seeds of these rows took so many seconds on an H200, one row after the other."""
    seconds = {"D = 10": 59.3, "D' = 32": 155.4, "D = 48": 216.9, "D = 56": 264.4, "D' = 64": 350.8}
    tables = [table for table in published_tables() if table.name in ("fig:highdim", "fig:encoder_size")]
    cells = Cells.of(tables, Setting("reference", "paper", (4, 5, 6, 7, 8)))
    work = {row: work_of(cells.trials[key], True) for (_, row), key in cells.keys.items()}
    for row, measured in seconds.items():
        assert work[row] / work["D = 10"] == pytest.approx(measured / seconds["D = 10"], rel=0.1), row


def test_seeds_side_by_side_on_a_gpu() -> None:
    """On an H200, five seeds take 86 s, one takes 35."""
    settings = RunConfig.of(profile="reference", scale="paper").flat()
    five, one = (work_of(Trial(settings, seeds, "grid"), True) for seeds in ((4, 5, 6, 7, 8), (4,)))
    assert five / one == pytest.approx(86 / 35, rel=0.1)
