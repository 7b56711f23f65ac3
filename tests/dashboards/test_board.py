"""The board's pages against values that are worked out anew from MLflow; what they escape, export and refuse."""

import re
import statistics
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from scipy import stats

from dashboards.board.site import Site
from dashboards.board.store.artifacts import Artifacts
from dashboards.board.store.mlflow_mirror import Mirror, open_database
from launch.testbed.processes import DEADLINE_S, wait_for
from pcl.presentation.numbers import MISSING, number
from pcl.studies.report.figures import scatter
from pcl.studies.tracking.store import Store, default_uri
from pcl.studies.tracking.tracker import Tracker
from tests.support.board_pages import MLFLOW, Page, Stored, shown
from tests.support.board_store import CAUSE, NASTY, OBJECTIVE, Writer, error, score, tags


def by_seed(stored: Stored, study: str, metric: str) -> dict[str, dict[str, float]]:
    """Last values of every seed that has not failed, by trial's name, of trials on tuning seeds."""
    names = {run.info.run_id: run for run in stored.find(study, "trial") if run.data.tags["pcl.stage"] != "report"}
    found: dict[str, dict[str, float]] = {run.info.run_name: {} for run in names.values()}
    for seed in stored.find(study, "seed"):
        parent = names.get(seed.data.tags["mlflow.parentRunId"])
        if parent is not None and "pcl.cause" not in seed.data.tags:
            found[parent.info.run_name][seed.data.tags["pcl.seed"]] = seed.data.metrics[metric]
    return found


def test_the_overview_tells_what_mlflow_has(stored: Stored) -> None:
    rows = {row["Study"].split("|")[0]: row for row in stored.page("index.html").rows("studies")}
    assert len(rows) == 4
    whole = rows["whole"]
    trials = stored.find("whole", "trial")
    finished = [run for run in trials if run.info.status == "FINISHED"]
    assert whole["State"] == "finished"
    assert rows["running"]["State"] == "running"
    assert whole["Trials"] == f"{len(trials)}|{len(finished)} finished, {len(trials) - len(finished)} failed"
    scores = by_seed(stored, "whole", OBJECTIVE)
    chosen = [name for name, values in scores.items() if len(values) == 3 and name != "n_samples=2"]
    best = max(chosen, key=lambda name: statistics.fmean(scores[name].values()))
    assert whole["Winner"] == best == "n_samples=5"
    assert whole["Best"] == f"{shown(list(scores[best].values()))}|κ rank ↑"
    spent = [run.data.metrics["time/train_s"] for run in trials if run.data.tags["pcl.hardware"] == "NVIDIA H200"]
    assert whole["Trial time"] == f"{sum(spent):.0f} s|CPU 2.5 s"


def test_a_study_ranks_its_trials_and_says_why_some_failed(stored: Stored) -> None:
    page = stored.page(f"study-{stored.runs['whole']}.html")
    rows = page.rows("trials")
    scores = by_seed(stored, "whole", OBJECTIVE)
    whole = {name: values for name, values in scores.items() if len(values) == 3 and name != "n_samples=2"}
    order = sorted(whole, key=lambda name: -statistics.fmean(whole[name].values()))
    assert [f"n_samples={row['n_samples']}" for row in rows] == [*order, "n_samples=32", "n_samples=2"]
    assert [row["Rank"] for row in rows] == ["1", "2", "3", "4", "5", MISSING]
    for row in rows[:-1]:
        values = scores[f"n_samples={row['n_samples']}"]
        assert row["κ rank ↑"] == shown(list(values.values()))
        assert row["seeds"] == ("2/3" if row["n_samples"] == "32" else "3")
    (run,) = [run for run in stored.find("whole", "trial") if run.info.run_name == "n_samples=1"]
    assert next(row for row in rows if row["n_samples"] == "1")["κ MAE ↓"] == number(run.data.metrics["eval/kappa_mae"])
    (report,) = page.rows("reports")
    assert (report["trial"], report["κ rank ↑"]) == ("n_samples=5", shown([score(0.28, seed) for seed in (4, 5)]))
    assert f"{CAUSE} (1 run)" in page.text
    assert "NaN in the loss (1 run)" in page.text
    links = [
        attrs["href"] or "" for tag, attrs in page.tags if tag == "a" and (attrs.get("href") or "").startswith("http")
    ]
    page_of_run = f"#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}?workflowType=machine_learning"
    assert f"{MLFLOW}/{page_of_run}" in links
    lines = [attrs for tag, attrs in page.tags if tag == "g" and (attrs.get("class") or "").startswith("line")]
    assert len([line for line in lines if "trial q" in (line["class"] or "")]) == 5
    assert {line["data-run"] for line in lines} <= {run.info.run_id for run in stored.find("whole", "trial")}


def test_every_link_to_mlflow_names_the_workflow(stored: Stored, tmp_path: Path) -> None:
    """Without it, a fresh browser opens MLflow's pages for language models."""
    pages = [stored.page(name) for name in stored.site.names() if name.endswith(".html")]
    values = [value for page in pages for _, attrs in page.tags for value in attrs.values() if value]
    links = {value for value in values if value.startswith(MLFLOW)}
    tracker = Tracker(default_uri(tmp_path))
    tracker.open_study("mine", tags("toy_space"))
    kinds = set()
    for link in {*links, f"{MLFLOW}/{tracker.trials_page}"}:
        path, _, query = link.removeprefix(f"{MLFLOW}/#/").partition("?")
        assert parse_qs(query)["workflowType"] == ["machine_learning"], link
        kinds.add(re.sub("[0-9a-f]{32}", "RUN", re.sub("/[0-9]+/", "/EXPERIMENT/", path)))
    assert kinds == {"experiments", "experiments/EXPERIMENT/runs", "experiments/EXPERIMENT/runs/RUN"}


@pytest.mark.parametrize("asked", ["", "n_samples=16"])
def test_an_ablation_pairs_seeds(stored: Stored, asked: str) -> None:
    runs = {
        run.info.run_name: run.info.run_id
        for run in stored.find("whole", "trial")
        if run.data.tags["pcl.stage"] == "grid"
    }
    page = stored.page(f"ablation-{stored.runs['whole']}.html", baseline=runs.get(asked, ""))
    base = asked or "n_samples=1"
    verdicts = set()
    for metric, table in ((OBJECTIVE, "t-eval-kappa_rank_corr"), ("eval/kappa_mae", "t-eval-kappa_mae")):
        scores = by_seed(stored, "whole", metric)
        rows = page.rows(table)
        assert [row["n_samples"] for row in rows] == ["1", "5", "8", "16", "32"]
        for row in rows:
            name = f"n_samples={row['n_samples']}"
            if name == base:
                assert row["verdict"] == "baseline"
                continue
            differences = [value - scores[base][seed] for seed, value in scores[name].items()]
            assert row["difference ± s.e."] == shown(differences)
            assert row["paired seeds"] == str(len(differences)) == ("2" if name == "n_samples=32" else "3")
            low, high = stats.t.interval(
                0.95, len(differences) - 1, statistics.fmean(differences), stats.sem(differences)
            )
            assert row["95% interval"] == f"{number(low)} to {number(high)}"
            is_good = statistics.fmean(differences) > 0 if metric == OBJECTIVE else statistics.fmean(differences) < 0
            verdicts.add(row["verdict"])
            assert row["verdict"] == ("unclear" if low <= 0 <= high else "better" if is_good else "worse")
    assert verdicts == ({"better", "unclear"} if not asked else {"better", "worse", "unclear"})


def test_a_winner_has_its_numbers_its_figure_and_a_way_to_load_it(stored: Stored) -> None:
    page = stored.page(f"winner-{stored.runs['whole']}.html")
    scores = by_seed(stored, "whole", "eval/kappa_mae")["n_samples=5"]
    row = next(row for row in page.rows("metrics") if row["metric"] == "κ MAE ↓|eval/kappa_mae")
    assert row["published"] == "6.15 ± 0.61"
    assert row["tuning seeds, mean ± s.e."] == shown(list(scores.values()))
    assert row["report seeds, mean ± s.e."] == shown([error(0.28, seed) for seed in (4, 5)])
    (source,) = [attrs["src"] for tag, attrs in page.tags if tag == "img"]
    file = stored.site.get(source or "")
    assert file is not None
    assert file.body == (stored.folder / "kappa.png").read_bytes()
    assert "pcl.load_encoder" in page.text
    assert stored.site.get(f"image-{stored.runs['whole']}-summary.png") is None


def test_a_winner_without_figures_says_so_and_one_with_its_own_shows_them(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    figure = tmp_path / "mine.png"
    scatter([1.0, 2.0], [1.5, 2.5], "kappa", figure)
    folder = writer.trial(1, (1,), 0.1)
    study = writer.study("cells", [folder, writer.trial(2, (1,), 0.0)], {}, score(0.1, 1))
    store = Store(default_uri(tmp_path))

    def winner() -> Page:
        site = Site(open_database(store), Artifacts(store), lambda: "", lambda: "", is_live=False)
        return Page((site.get(f"winner-{study}.html") or pytest.fail("no such page")).body.decode())

    assert "No figures are recorded." in winner().text
    (run,) = [run for run in store.find(store.experiments("pcl/"), {"pcl.kind": "trial"}) if "=1" in run.info.run_name]
    store.call(lambda client: client.log_artifact(run.info.run_id, str(figure)))
    assert [attrs["src"] for tag, attrs in winner().tags if tag == "img"] == [f"image-{run.info.run_id}-mine.png"]
    assert "No figures" not in winner().text


def test_pages_of_metrics_are_files(stored: Stored) -> None:
    whole = stored.runs["whole"]
    assert "κ MAE ↓ of every trial" in stored.page(f"parameters-{whole}-eval-kappa_mae.html").text
    assert stored.site.get(f"parameters-{whole}-eval-nothing.html") is None
    assert stored.site.get(f"parameters-{'0' * 32}.html") is None
    script = (stored.site.get(f"curves-{whole}.js") or pytest.fail("no such file")).body.decode()
    assert script.startswith(f'board.takeCurves("{whole}"')
    assert stored.site.get(f"curves-{whole}.html") is None


def test_a_server_is_mirrored_to_the_same_pages(stored: Stored) -> None:
    mirror = Site(Mirror(stored.store), Artifacts(stored.store), lambda: MLFLOW, lambda: "")
    names = [name for name in stored.site.names() if not name.startswith("image")]
    assert names == [name for name in mirror.names() if not name.startswith("image")]
    for name in names:
        assert mirror.get(name) == stored.site.get(name), name


def test_a_server_is_shown_while_it_is_read(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    store, gate, asked = Store(stored.store.uri), threading.Event(), []

    def slow(call: Callable[[Any], Any]) -> Any:
        asked.append(call)
        assert len(asked) < 4 or gate.wait(DEADLINE_S)
        return Store.call(store, call)

    monkeypatch.setattr(store, "call", slow)
    mirror = Mirror(store)
    site = Site(mirror, Artifacts(stored.store), lambda: MLFLOW, lambda: "")
    mirror.begin()

    def overview() -> Page:
        return Page((site.get("index.html") or pytest.fail("no such page")).body.decode())

    wait_for(lambda: "still reading: 4 runs so far" in overview().text, "studies are shown")
    page = overview()
    assert len(page.tables["studies"]) == 5
    assert {row["Trials"].split("|")[0] for row in page.rows("studies")} == {"0"}
    gate.set()
    wait_for(lambda: "still reading" not in overview().text, "all has been read")
    wait_for(lambda: overview().html == stored.page("index.html").html, "both have their thumbnails")


def test_news_reach_the_pages(stored: Stored) -> None:
    databases = [open_database(stored.store), Mirror(stored.store)]
    sites = [Site(database, Artifacts(stored.store), lambda: "", lambda: "") for database in databases]
    name = f"study-{stored.runs['running']}.html"
    before = [len(Page((site.get(name) or pytest.fail("no such page")).body.decode()).rows("trials")) for site in sites]
    versions = [database.version() for database in databases]
    assert versions == [database.version() for database in databases]
    writer = Writer(stored.folder)
    writer.tracker.open_study("running", tags("toy_space"))
    writer.tracker.sync(writer.trial(16 + before[0], (1,), 0.7, n_reports=2))

    def n_trials(site: Site) -> int:
        return len(Page((site.get(name) or pytest.fail("no such page")).body.decode()).rows("trials"))

    for site, n_before in zip(sites, before, strict=True):
        wait_for(lambda site=site, n=n_before + 1: n_trials(site) == n, "the trial is shown")  # type: ignore[misc]


def test_a_store_that_is_not_there_yet_is_an_empty_board(tmp_path: Path) -> None:
    store = Store(default_uri(tmp_path))
    site = Site(open_database(store), Artifacts(store), lambda: "", lambda: "")
    assert "No study is recorded yet" in (site.get("index.html") or pytest.fail("no such page")).body.decode()
    assert not list(tmp_path.iterdir())


def test_text_from_the_store_stays_text(stored: Stored, tmp_path: Path) -> None:
    seen = 0
    for name in stored.site.names():
        if not name.endswith(".html"):
            continue
        page = stored.page(name)
        seen += NASTY in page.text or NASTY.replace("'", "`") in page.text
        scripts = [attrs.get("src") for tag, attrs in page.tags if tag == "script"]
        assert set(scripts) <= {"board.js", "charts.js", "compare.js", "curves.js"}
        assert not [key for _, attrs in page.tags for key in attrs if key.startswith("on") or key == "style"]
        assert all((attrs.get("src") or "").startswith("image-") for tag, attrs in page.tags if tag == "img")
    assert seen >= 4
    data = stored.site.get(f"data-{stored.runs['nasty']}.js")
    assert data is not None
    assert data.body.decode().startswith("board.take(")
