"""Values that are undefined or infinite say so wherever they are shown, and never end a command."""

import json
import math
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from dashboards.board.site import Site
from dashboards.board.store.artifacts import Artifacts
from dashboards.board.store.mlflow_mirror import open_database
from launch.train import main
from launch.training.run_results import results_of
from pcl.config.run_config import RunConfig
from pcl.metrics.undefined import UNDEFINED
from pcl.presentation.numbers import MISSING
from pcl.studies.execution.progress import described
from pcl.studies.ledger.folders import Result, Row, Status, StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.paper.comparison import Ours, lines_of
from pcl.studies.paper.published import published_tables
from pcl.studies.report.outputs import table, write_all
from pcl.studies.report.paired_table import Reached, as_text, compared
from pcl.studies.results.metric_onset import judged_curve
from pcl.studies.results.replication import Difference, Replication
from pcl.studies.results.replication import described as replicated
from pcl.studies.results.selection import Outcome, ranked, winner
from pcl.studies.search.stages import Finding
from pcl.studies.space.search_space import Mode, Objective, load_space
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.run_content import OBJECTIVE, OBJECTIVE_SE, trial_ending
from pcl.studies.tracking.store import Store
from pcl.tasks import judging
from pcl.tasks.judging import kappa_metrics
from tests.support.board_pages import Page
from tests.support.board_store import Writer, score
from tests.support.commands import called

METRIC = "eval/kappa_rank_corr"


def strict(text: str) -> object:
    """JSON without the words that Python's reader takes for numbers."""

    def refuse(word: str) -> object:
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)


def outcome(*values: float, kappa_pos: float = 20.0) -> Outcome:
    config = RunConfig.of({"loss.kappa_pos": kappa_pos}, scale="smoke").flat()
    by_seed = {seed: {METRIC: value} for seed, value in enumerate(values, start=1)}
    trial = Trial(config, tuple(by_seed), "grid", {"loss.kappa_pos": kappa_pos})
    return Outcome(trial, Result(Status.FINISHED), by_seed)


def test_a_training_whose_kappa_is_constant_ends_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with `--profile exact` at D = 100: the rank correlation of a constant is undefined."""
    monkeypatch.setattr(judging, "kappa_metrics", lambda kappa, true: kappa_metrics(torch.full_like(kappa, 20.0), true))
    checkpoint = tmp_path / "run.pt"
    sets = ("task.largest_cosine=0.9", "task.dim=4", "task.dim_x=3", "encoder.dim=4")
    words = [word for setting in sets for word in ("--set", setting)]
    words += ["--scale", "smoke", "--profile", "paper", "--device", "cpu", "--seed", "4", "--seed", "5"]
    result = called("launch/train.py", main, *words, "--checkpoint", str(checkpoint))
    assert result.returncode == 0, result.stderr
    assert "seed 4: loss " in result.stdout
    assert f"kappa rank {UNDEFINED} (in 2 of 2 seeds)" in result.stdout
    assert "nan" not in result.stdout
    content = strict(results_of(checkpoint).read_text())
    assert isinstance(content, dict)
    assert content["by_seed"]["4"][METRIC] is None
    assert content["by_seed"]["4"]["eval/mu_rank_corr"] is not None


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_trial_without_a_finite_mean_is_behind_and_no_winner(value: float, mode: Mode) -> None:
    objective = Objective(METRIC, mode)
    undefined, worse, better = outcome(0.9, value), outcome(0.5, 0.5, kappa_pos=5.0), outcome(0.6, 0.6, kappa_pos=6.0)
    best = better if mode is Mode.MAX else worse
    assert winner([undefined, worse, better], objective) is best
    assert ranked([undefined, worse, better], objective)[-1] is undefined
    assert winner([undefined], objective) is None


def test_the_mean_over_seeds_is_undefined_where_one_is() -> None:
    assert math.isnan(outcome(0.5, math.nan).mean(METRIC))
    assert math.isnan(outcome(0.5, math.nan).standard_error(METRIC))
    assert outcome(0.5, -math.inf).mean(METRIC) == -math.inf
    assert math.isnan(outcome(math.inf, -math.inf).mean(METRIC))
    assert UNDEFINED in described(outcome(0.5, math.nan), Objective(METRIC))
    assert "∞" in described(outcome(0.5, math.inf), Objective(METRIC))


def test_a_study_says_so_in_its_table_and_its_files(tmp_path: Path) -> None:
    space = load_space("toy_mcinfonce")
    outcomes = ranked(
        [outcome(0.9, math.nan), outcome(0.5, 0.6, kappa_pos=5.0), outcome(-math.inf, 1)], space.objective
    )
    lines = table(outcomes, space)
    assert [UNDEFINED in line for line in lines] == [False, False, True, False]
    assert "-∞" in lines[3]
    assert not any("nan" in line for line in lines)
    finding = Finding({"grid": outcomes}, outcomes[0])
    write_all(StudyFolder(tmp_path / "s"), space, StudySpec(space.name, space.fingerprint(), "paper", "smoke"), finding)
    summary = strict((tmp_path / "s" / "summary.json").read_text())
    assert isinstance(summary, dict)
    assert [entry["mean"][METRIC] for entry in summary["stages"]["grid"]] == [0.55, None, None]


def test_replication_says_so() -> None:
    found = Replication(1, [outcome(0.9), outcome(0.5, kappa_pos=5.0)], [Difference(0.4, math.inf, 1)])
    first, second = replicated(found, Objective(METRIC))
    assert "nan" not in first + second
    assert "behind by 0.400 ± ∞ (1 seeds, not clear)" in second


def test_mlflow_gets_the_same_mean() -> None:
    by_seed = {1: {METRIC: 0.5}, 2: {METRIC: math.nan}}
    rows = [Row(8, 8, 1, 0.5, by_seed, {})]
    ending = trial_ending(outcome(0.5, math.nan).trial, Result(Status.FINISHED), rows, METRIC)
    points = {name: value for name, value, _, _ in ending.metrics}
    assert math.isnan(points[OBJECTIVE])
    assert math.isnan(points[OBJECTIVE_SE])
    assert math.isnan(rows[0].metrics[METRIC])


def test_what_is_undefined_judges_no_training() -> None:
    config = RunConfig.of({"training.phases": "joint"}, scale="smoke")
    last = config.training.n_batches
    rows = [Row(b, last, 1, 0.5, {1: {METRIC: v}, 2: {METRIC: 0.5}}, {}) for b, v in ((1, math.nan), (2, 0.7))]
    assert [value for _, value in judged_curve(rows, config, METRIC)] == [0.6]


def test_a_reproduction_says_so_and_counts_the_others() -> None:
    tables = {table.name: table for table in published_tables()}

    def line(*values: float) -> tuple[str, str, str]:
        ours = Ours({seed: {METRIC: v, "eval/kappa_median": 20.0} for seed, v in enumerate(values, start=4)}, n_asked=3)
        lines = lines_of(tables["tab:toy_correctsetups"], defaultdict(Ours, {"ambiguous": ours}))
        found = next(line for line in lines if line.what == "κ rank corr.")
        return found.ours, found.seeds, found.verdict

    assert line(math.nan, math.nan, math.nan) == (UNDEFINED, "0 of 3", "no value")
    assert line(0.5, math.nan, 0.7)[:2] == ("0.600±0.100", "2 of 3")
    assert line(0.5, -math.inf, 0.7)[0] == "-∞"


def test_an_ablation_says_so() -> None:
    constant = Reached("b", {4: {METRIC: math.nan}, 5: {METRIC: math.nan}})
    plain = Reached("a", {4: {METRIC: 0.5}, 5: {METRIC: 0.6}})
    text = "\n".join(as_text(compared([plain, constant], "a", [METRIC]), "paper"))
    assert UNDEFINED in text
    assert "nan" not in text
    alone = "\n".join(as_text(compared([constant], "b", [METRIC]), "paper"))
    assert UNDEFINED in alone


def test_the_board_says_so(tmp_path: Path) -> None:
    """A study with a trial that is undefined in both seeds, as MLflow keeps it."""
    writer = Writer(tmp_path)
    trials = [writer.trial(n, (1, 2), shift) for n, shift in ((1, 0.3), (5, math.nan), (8, math.inf))]
    parent = writer.study("constant", trials, {}, sum(score(0.3, seed) for seed in (1, 2)) / 2)
    store = Store(writer.uri)
    site = Site(open_database(store), Artifacts(store), lambda: "", lambda: "")

    def page(name: str) -> Page:
        file = site.get(name, {})
        assert file is not None
        return Page(file.body.decode())

    rows = {row["n_samples"]: row for row in page(f"study-{parent}.html").rows("trials")}
    assert rows["5"]["κ rank ↑"] == UNDEFINED
    assert rows["8"]["κ rank ↑"] == "∞"
    assert [rows[n]["Rank"] for n in ("1", "5", "8")] == ["1", MISSING, MISSING]
    assert page("index.html").rows("studies")[0]["Winner"] == "n_samples=1"
    data = site.get(f"data-{parent}.js", {})
    assert data is not None
    strict(data.body.decode().partition(", ")[2].rpartition(");")[0])


def test_the_scoreboard_says_so(tmp_path: Path) -> None:
    row = published_tables()[0].rows[0]
    writer = Writer(tmp_path)
    constant = writer.begun(Trial(row.config("reference", "smoke"), (4, 5), "report", {"row": row.name}), math.nan)
    writer.study("paper", [constant], {}, 1.0)
    store = Store(writer.uri)
    site = Site(open_database(store), Artifacts(store), lambda: "", lambda: "")
    file = site.get("scoreboard.html", {})
    assert file is not None
    found = Page(file.body.decode())
    lines = [line for rows in found.tables for line in found.rows(rows) if line["Row"] == row.name]
    assert any(UNDEFINED in line["Ours"] and "not measured" in line["Verdict"] for line in lines)
