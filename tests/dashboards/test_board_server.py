"""The board's server, export and command: who is answered, what is refused, and how fast."""

import http.client
import json
import re
import shutil
import subprocess
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from dashboards.board.export import export
from dashboards.board.server import BoardServer
from dashboards.board.site import Site
from dashboards.board.store.artifacts import Artifacts
from dashboards.board.store.mlflow_mirror import open_database
from launch import board
from launch.shared.ui_services import MlflowPages
from launch.testbed.processes import DEADLINE_S, wait_for
from pcl.studies.tracking.database_file import FileDatabase, StoreError
from pcl.studies.tracking.store import Store, default_uri
from tests.support.board_pages import MLFLOW, Page, Stored
from tests.support.board_process import served
from tests.support.board_store import write_many
from tests.support.commands import called
from tests.support.pace import within

ROOT = Path(__file__).parents[2]


def test_an_export_needs_nothing_from_outside(stored: Stored, tmp_path: Path) -> None:
    site = Site(open_database(stored.store), Artifacts(stored.store), lambda: MLFLOW, lambda: "", is_live=False)
    folder = tmp_path / "site"
    (folder).mkdir()
    (folder / f"study-{'0' * 32}.html").write_text("of an earlier export")
    files = export(site, folder)
    assert set(files) == set(folder.iterdir())
    by_metric = [path.name for path in files if path.name.startswith("parameters-")]
    assert len(files) == 3 + 6 + 4 * 5 + len(by_metric) + 1
    whole = stored.runs["whole"]
    assert {f"parameters-{whole}.html", f"parameters-{whole}-eval-kappa_mae.html"} <= set(by_metric)
    for path in files:
        if path.suffix in (".png", ".svg"):
            continue
        text = path.read_text()
        addresses = re.findall(r"https?://[^\s\"'<>\\]+", text)
        assert all(address.startswith(f"{MLFLOW}/#/") or address == MLFLOW for address in addresses), path.name
        for _, attrs in Page(text).tags if path.suffix == ".html" else ():
            for key in ("href", "src"):
                target = attrs.get(key) or "#"
                is_here = (folder / target.partition("#")[0]).is_file()
                assert is_here or target.startswith(("#", "http")), target
    for name in ("mine.txt", "study-notes.txt", "data-measurements.csv", "image-mine.png"):
        (folder / name).write_text("not an export's")
        with pytest.raises(ValueError, match=f"'{re.escape(name)}'"):
            export(site, folder)
        (folder / name).unlink()
    (folder / f"data-{'0' * 32}.js").mkdir()
    with pytest.raises(ValueError, match=r"has 'data-0+\.js'"):
        export(site, folder)


class Answer(NamedTuple):
    """Of a server."""

    status: int
    headers: dict[str, str]
    body: bytes


def test_the_server_answers_its_own_name_alone(stored: Stored) -> None:
    with served(stored.site) as server:
        port = server.server_address[1]

        def ask(path: str, host: str = f"127.0.0.1:{port}", method: str = "GET", mark: str = "") -> Answer:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
            connection.request(method, path, headers={"Host": host, "If-None-Match": mark})
            answer = connection.getresponse()
            found = Answer(answer.status, dict(answer.headers), answer.read())
            connection.close()
            return found

        first = ask("/")
        assert first.status == 200
        assert "default-src 'none'" in first.headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in first.headers["Content-Security-Policy"]
        assert first.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert ask("/", f"localhost:{port}").status == 200
        assert ask("/", "[").status == 403
        assert ask("/", "192.0.2.1").status == 403
        assert ask("/", "rebound.example").status == 403
        assert ask(f"/data-{stored.runs['whole']}.js", "rebound.example:80").status == 403
        # Figures of the overview are listed in the background: the page changes once they are there.
        wait_for(lambda: ask("/", mark=ask("/").headers["ETag"]).status == 304, "an overview that stays as it is")
        assert ask("/", mark='"another"').status == 200
        assert ask("/", method="HEAD").body == b""
        assert ask("/", method="POST").status == 501
        unknown = f"/study-{'0' * 32}.html"
        for path in ("/nothing.html", "/../pyproject.toml", "/%2e%2e/board.css", "/study-.html", unknown):
            assert ask(path).status == 404, path


def test_a_server_for_others_answers_to_numbers_too(stored: Stored) -> None:
    with BoardServer(stored.site, "0.0.0.0", 0, "a store") as server:
        assert server.answers_to("192.0.2.1:8300")
        assert not server.answers_to("rebound.example:8300")


def test_a_database_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_text("no database" * 1000)
    database = FileDatabase(tmp_path / "mlflow.db")
    with pytest.raises(StoreError, match="cannot be read"):
        database.rows("select * from runs")


def test_five_thousand_trials_load_in_two_seconds(stored: Stored, tmp_path: Path) -> None:
    shutil.copy(stored.folder / "mlflow.db", tmp_path)
    write_many(tmp_path / "mlflow.db", n_studies=1, n_trials=5000)
    store = Store(default_uri(tmp_path))
    site = Site(open_database(store), Artifacts(store), lambda: MLFLOW, lambda: "")
    name = f"study-00000000{'f' * 24}.html"
    body = (within(2, lambda: site.get(name)) or pytest.fail("no such page")).body
    assert len(body) < 2 * 2**20
    page = Page(body.decode())
    (more,) = re.findall(r'<script type="application/json" class="more">(.*?)</script>', page.html)
    ranks = [row["Rank"] for row in page.rows("trials")] + [cells[1][0] for *_, cells in json.loads(more)]
    assert ranks == [str(rank) for rank in range(1, 5001)]
    page = Page((within(2, lambda: site.get("index.html")) or pytest.fail("no such page")).body.decode())
    rows = {row["Study"].split("|")[0]: row for row in page.rows("studies")}
    assert rows["study_0"]["Trials"] == "5,000|5,000 finished"
    assert (rows["study_0"]["Best"], rows["study_0"]["Winner"]) == ("1.000|κ rank ↑", "lr=4999")


def test_what_takes_long_is_made_before_it_is_asked_for(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dashboards.board.site._LARGE", 7)
    site = Site(open_database(stored.store), Artifacts(stored.store), lambda: MLFLOW, lambda: "")
    made = []
    monkeypatch.setattr(site, "_of_study", lambda kind, study, *_: made.append(study.run.id) or kind)
    scoreboards = []
    monkeypatch.setattr("dashboards.board.site.scoreboard_page", lambda *_: scoreboards.append(1) or "scores")
    for _ in range(2):
        site.get("index.html")
    wait_for(lambda: not any(thread.name == "prepare" for thread in threading.enumerate()), "all is made")
    assert (site.get(f"study-{stored.runs['whole']}.html") or pytest.fail("no such page")).body == b"study"
    assert made == [stored.runs["whole"]]
    assert scoreboards == [1]
    assert (site.get("scoreboard.html") or pytest.fail("no such page")).body == b"scores"
    assert scoreboards == [1]


def test_an_overview_does_not_wait_for_figures_but_an_export_does(
    stored: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, artifacts = threading.Event(), Artifacts(stored.store)
    listed = artifacts._listed
    monkeypatch.setattr(artifacts, "_listed", lambda run_id: gate.wait(DEADLINE_S) and listed(run_id))
    site = Site(open_database(stored.store), artifacts, lambda: MLFLOW, lambda: "")

    def has_thumbnail(made: Site) -> bool:
        return b'class="thumb"' in (made.get("index.html") or pytest.fail("no such page")).body

    assert [has_thumbnail(site) for _ in range(2)] == [False, False]
    gate.set()
    wait_for(lambda: has_thumbnail(site), "figures are shown")
    exported = Site(open_database(stored.store), Artifacts(stored.store), lambda: "", lambda: "", is_live=False)
    assert has_thumbnail(exported)


def test_mlflow_s_pages_need_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mlflow-server.log").mkdir()
    started: list[dict[str, object]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda _, **options: started.append(options))
    MlflowPages(Store(default_uri(tmp_path)), 5000)._start(5000)
    assert [options["stdout"] for options in started] == [subprocess.DEVNULL]


def test_mlflow_s_pages_are_where_browsers_find_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MlflowPages, "_start", lambda *_: pytest.fail("a server is started"))
    for uri in (default_uri(tmp_path), "http://mlflow:5000"):
        with MlflowPages(Store(uri), 5000, "http://tracking.example:5000") as pages:
            assert pages.address() == "http://tracking.example:5000"
    assert MlflowPages(Store("http://mlflow:5000"), 5000).address() == "http://mlflow:5000"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--tracking-uri", "file:///tmp/x"], "The tracking URI must be"),
        (["--tracking-uri", "http://127.0.0.1:9"], "cannot be reached"),
        (["--storage", "nowhere", "--export", "out"], "There is no tracking database"),
        (["--storage", "STORE", "--export", "FILE"], "must name a folder"),
        (["--storage", "STORE", "--export", "STORE"], "must name a new folder"),
        (["--storage", "STORE", "--port", "70000"], "`--port` must be"),
        (["--storage", "STORE", "--export", "/proc/nope"], "`--export` must name a folder that can be written to"),
        (["--storage", "FILE"], "Studies must be in a folder"),
        (["--storage", "FILE/below", "--export", "out"], "Studies must be in a folder"),
        (["--storage", "STORE", "--host", "nosuch.invalid"], "`--host` must be an IPv4 address or name of"),
        (["--storage", "STORE", "--host", "192.0.2.1", "--port", "0"], "`--host` must be an IPv4 address or name of"),
        (["--storage", "x" * 300], "cannot be looked at (File name too long); `--storage` or"),
        (["--storage", "/dev/null"], "but /dev/null is none; `--storage` or"),
        (["--storage", "STORE", "--ray", "javascript:alert(1)"], "`--ray` must be"),
        (["--storage", "STORE", "--mlflow", "javascript:alert(1)"], "`--mlflow` must be"),
    ],
)
def test_what_the_command_refuses(stored: Stored, arguments: list[str], told: str) -> None:
    places = {"STORE": str(stored.folder), "FILE": str(stored.folder / "kappa.png")}
    named = [re.sub("^(STORE|FILE)", lambda place: places[place[0]], argument) for argument in arguments]
    result = called("launch/board.py", board.main, *named)
    assert result.returncode == 2
    assert told in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert "[Errno" not in result.stderr
