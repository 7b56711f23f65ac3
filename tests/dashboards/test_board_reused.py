"""What the board says of trials that were reused: they count once, and learn as they did."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dashboards.board import site
from dashboards.board.html.frame import PageContext
from dashboards.board.pages.overview import overview_page
from dashboards.board.store.artifacts import Artifacts
from dashboards.board.store.histories import histories
from dashboards.board.store.mlflow_mirror import Mirror, open_database
from dashboards.board.store.records import all_studies, one_study
from pcl.studies.ledger.folders import Result, Status
from pcl.studies.tracking.store import Store
from tests.support.board_pages import Page, Stored
from tests.support.board_store import OBJECTIVE, Writer, tags

AROUND = PageContext(now_ms=10**12)


def test_reused_trials_count_once_and_learn_as_they_did(tmp_path: Path) -> None:
    """Of what is reused a study has the last value alone; of a chain of studies, the first has trained it."""
    writer = Writer(tmp_path)
    first = writer.study("first", [writer.trial(n, (1,), n / 10) for n in (1, 2)], {}, 0.2)
    found = {"first": first}
    for name, source in (("second", "first"), ("third", "second"), ("orphan", "gone")):
        found[name] = writer.tracker.open_study(name, tags("toy_space"))
        folder = writer.trial(2, (1,), 0.2, n_reports=1)
        folder.close(Result(Status.FINISHED, reused_from=source))
        writer.tracker.sync(folder)
    store = Store(writer.uri)
    for database in (open_database(store), Mirror(store)):
        page = Page(overview_page(all_studies(database), AROUND))
        assert "trials2of them2 finishedreused3" in page.text
        counts = {row["Study"].split("|")[0]: row["Trials"] for row in page.rows("studies")}
        assert counts == {"first": "2|2 finished"} | dict.fromkeys(
            ("second", "third", "orphan"), "1|1 finished|1 reused")  # fmt: skip
        steps = {}
        for name, run_id in found.items():
            study = one_study(database, run_id)
            assert study is not None
            last = study.trials[-1].run
            steps[name] = [step for step, _ in histories(database, [last], OBJECTIVE)[last.id]]
        assert steps == {"first": [4, 8, 12], "second": [4, 8, 12], "third": [4, 8, 12], "orphan": [4]}


@pytest.mark.parametrize(
    ("metric", "best", "steps"),
    [
        ("val/crop_rank_corr", 2.0, [2, 4]),
        ("val/crop_rank_corr", 6.0, [2, 4, 6]),
        ("val/crop_rank_corr", None, [2, 4, 6]),
        ("train/loss", 2.0, [2, 4, 6]),
    ],
)
def test_a_best_evaluation_that_is_reported_again_is_no_point_of_a_curve(
    metric: str, best: float | None, steps: list[int]
) -> None:
    rows = [("run", step, 0.5, False) for step in (2, 4, 6)]
    database: Any = SimpleNamespace(histories=lambda runs, name: rows)
    run: Any = SimpleNamespace(id="run", tags={}, metrics={} if best is None else {"best/batch": best})
    assert [step for step, _ in histories(database, [run], metric)["run"]] == steps


@pytest.mark.parametrize("page", ["study-{}.html", "curves-{}.js"])
def test_pages_with_curves_know_the_best_batch(page: str, stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []
    load = site.one_study

    def loaded(database: Any, run_id: str, metrics: tuple[str, ...] = ()) -> Any:
        asked.append(metrics)
        return load(database, run_id, metrics)

    monkeypatch.setattr(site, "one_study", loaded)
    fresh = site.Site(open_database(stored.store), Artifacts(stored.store), lambda: "", lambda: "")
    assert fresh.get(page.format(stored.runs["whole"]), {}) is not None
    assert ["best/batch" in metrics for metrics in asked] == [True]
