"""The winner's page of a study says how to make a model of it and, once there is one, links it."""

from pathlib import Path

from dashboards.board.html.frame import PageContext
from dashboards.board.pages.winner import winner_page
from dashboards.board.store.records import one_study
from pcl.studies.tracking.database_file import FileDatabase
from pcl.studies.tracking.tags import Tag
from tests.support.board_pages import MLFLOW, Page
from tests.support.board_store import Writer, score

AROUND = PageContext(mlflow=MLFLOW, now_ms=10**12)


def test_the_winners_page_links_its_model(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    winner, other = writer.trial(1, (1,), 0.1), writer.trial(2, (1,), 0.0)
    run = writer.study("mine", [winner, other], {}, score(0.1, 1))

    def page(around: PageContext = AROUND) -> Page:
        study = one_study(FileDatabase(tmp_path / "mlflow.db"), run)
        assert study is not None
        return Page(winner_page(study, [], around))

    def links(found: Page) -> list[str]:
        return [attrs["href"] or "" for tag, attrs in found.tags if tag == "a" and "/models/" in (attrs["href"] or "")]

    before = page()
    assert links(before) == []
    assert "launch/champion.py mine" in before.text
    writer.tracker.store.log(run, tags={Tag.MODEL: "my.toys/3", Tag.MODEL_TRIAL: winner.key})
    after = page()
    assert links(after) == [f"{MLFLOW}/#/models/my.toys/versions/3?workflowType=machine_learning"]
    assert f"MLFLOW_TRACKING_URI={MLFLOW} mlflow models serve -m models:/my.toys/3" in after.text
    assert "launch/champion.py" not in after.text
    assert "earlier winner" not in after.text
    alone = page(PageContext(now_ms=10**12))
    assert links(alone) == []
    assert "my.toys, version 3" in alone.text
    writer.tracker.store.log(run, tags={Tag.MODEL_TRIAL: other.key})
    assert "(of an earlier winner)" in page().text
