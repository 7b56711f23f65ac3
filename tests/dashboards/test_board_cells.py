"""What the board says of reproductions, whose cells are no variants of each other."""

import re

from dashboards.board.html.frame import PageContext
from dashboards.board.pages.ablation import ablation_page
from dashboards.board.pages.overview import overview_page
from dashboards.board.pages.study import study_page
from dashboards.board.pages.winner import winner_page
from dashboards.board.store.records import Run, Study, Trial
from pcl.presentation.numbers import MISSING
from pcl.studies.tracking.tags import RunState
from tests.support.board_pages import Page
from tests.support.board_store import OBJECTIVE

AROUND = PageContext(now_ms=10**12)


def trial(name: str, stage: str, objective: float, **params: object) -> Trial:
    run = Run(f"{stage[0]}{name}".ljust(32, "0"), "1", name, RunState.FINISHED, 1, 2, {"pcl.stage": stage})
    run.metrics = {"objective": objective, OBJECTIVE: objective}
    run.params = {path.replace("__", "."): str(value) for path, value in params.items()}
    seeds = [
        Run(f"{run.id}{seed}", "1", "", RunState.FINISHED, 1, 2, {"pcl.seed": seed}, {OBJECTIVE: objective})
        for seed in "45"
    ]
    return Trial(run, seeds)


def reproduction() -> Study:
    """Two grids whose trials have equal names, and cells that differ in twenty settings."""
    about = {"pcl.objective": OBJECTIVE, "pcl.space": "reproduce_toy", "pcl.kind": "study"}
    study = Study(Run("a" * 32, "1", "reproduce_toy-smoke", RunState.FINISHED, 1, 2, about))
    for loss in ("elk", "mcinfonce"):
        own = {"loss__anchors": "posterior"} if loss == "mcinfonce" else {}
        study.trials += [trial(f"M={m}", "grid", m / 2, loss_name=loss, training__n_negatives=m, **own) for m in (0, 1)]
    for i, name in enumerate(("bench_results, HIB", "mc, K = 4")):
        settings = {f"task__setting_{j}": f"value_{i * (j % 3)}" for j in range(20)}
        study.trials.append(trial(f"cell={name}", "reproduction", i / 5, loss_name="hib", **settings))
    return study


def test_cells_have_names_few_settings_and_no_rank() -> None:
    html = study_page(reproduction(), {}, AROUND)
    page = Page(html)
    assert [(row["Cell"], row["Stage"], row["loss_name"]) for row in page.rows("trials")] == [
        ("bench_results, HIB", "reproduction", "hib"), ("mc, K = 4", "reproduction", "hib"),
        ("M=0", "grid", "elk"), ("M=1", "grid", "elk"), ("M=0", "grid", "mcinfonce"), ("M=1", "grid", "mcinfonce"),
    ]  # fmt: skip
    assert list(page.rows("trials")[0]) == [
        "Compare", "Cell", "State", "Stage", "loss_name", "κ rank ↑", "seeds", "time", "Record",
    ]  # fmt: skip
    assert "What was varied" not in html
    assert 'class="marked"' not in html


def test_cells_are_neither_paired_nor_chosen_among() -> None:
    study = reproduction()
    assert study.winner is None
    (row,) = Page(overview_page([study], AROUND)).rows("studies")
    assert (row["Best"], row["Winner"]) == (MISSING, "on the scoreboard")
    for html in (ablation_page(study, AROUND), winner_page(study, [], AROUND), study_page(study, {}, AROUND)):
        page = Page(html)
        assert set(page.tables) <= {"trials", ""}
        main = html.partition("<main")[2]
        assert main.count('href="scoreboard.html"') == 2  # among the study's pages, and in a sentence
        assert "ablation-" not in main
        assert "winner-" not in main
        assert "Best trial" not in main


def test_many_settings_that_vary_are_not_all_drawn() -> None:
    study = Study(Run("a" * 32, "1", "s", RunState.FINISHED, 1, 2, {"pcl.objective": OBJECTIVE, "pcl.space": "toy"}))
    study.trials = [
        trial(f"trial {i}", "grid", i / 5, **{f"task__setting_{j}": int(i == j) for j in range(12)}) for i in range(12)
    ]
    html = study_page(study, {}, AROUND)
    assert len(re.findall(r'<g class="axis(?: goal)?">', html.partition('id="parallel"')[2])) == 9
    assert "The first 8 of 12 settings that vary are drawn." in html
