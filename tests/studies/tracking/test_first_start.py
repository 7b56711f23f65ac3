"""Processes that are killed while they make MLflow's database: the next start works."""

import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dashboards.board.store.mlflow_mirror import open_database
from launch import ablate
from launch.testbed.processes import DEADLINE_S
from launch.testbed.small_network import SMALL
from pcl.storage.sqlite_files import new_database, put, revision
from pcl.studies.tracking import database_creation as mlflow_creation
from pcl.studies.tracking.database_creation import creation_lock, ensure_database
from pcl.studies.tracking.database_file import read_only
from pcl.studies.tracking.store import Store
from tests.support.database_crashes import crashed

EXPECTED_SECONDS = 60


STRIDES = [5, pytest.param(1, marks=pytest.mark.slow)]  # some of the crash points, or all


def n_aside(point: dict[str, Any]) -> int:
    return sum(".incomplete-" in name and not name.endswith("-journal") for name in point["names"])


@pytest.mark.parametrize("stride", STRIDES)
def test_mlflow_after_a_kill_at_any_step(stride: int, tmp_path: Path) -> None:
    points, told = crashed("mlflow", tmp_path, stride)
    cases = {case: [point for point in points if point["case"] == case] for case in (p["case"] for p in points)}
    assert set(cases) == {"now", "before", "absent", "half made"}
    assert all(len(found) * stride >= 8 for found in cases.values())
    assert all(point["works"] for point in points)
    assert not [name for point in points for name in point["names"] if name.startswith(".")]
    for case in ("now", "absent"):  # nothing half made is ever under the name
        assert [n_aside(point) for point in cases[case]] == [0] * len(cases[case])
    for case in ("before", "half made"):
        assert [n_aside(point) for point in cases[case]] == [1] * len(cases[case])
    assert all(line.count(".incomplete-") == 1 for line in told.splitlines())
    assert len(told.splitlines()) >= len(cases["before"])
    assert {point["root"] for point in points} == {(tmp_path / "whole" / "artifacts" / "0").as_uri()}  # it was copied


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database that MLflow has made."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    Store(f"sqlite:///{path}").call(lambda _: None)
    return path


def half_made(path: Path) -> Path:
    """As MLflow leaves it when it is killed in its first migration."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("create table experiments (experiment_id integer, artifact_location text)")
        connection.execute("create table metrics (key text, step bigint)")
        connection.execute("create table alembic_version (version_num text)")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_commands_say_what_they_moved_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    content = half_made(tmp_path / "runs" / "mlflow.db").read_bytes()
    words = ["--ablation", "mc_samples", "--scale", "smoke", "--plan", "--storage", str(tmp_path / "runs")]
    small = [word for path, value in SMALL.items() for word in ("--set", f"{path}={value}")]
    monkeypatch.setattr(sys, "argv", ["launch/ablate.py", *words, *small])
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    for n_told in (1, 0):
        ablate.main()
        assert len(capsys.readouterr().err.splitlines()) == n_told
    (aside,) = (tmp_path / "runs").glob("mlflow.db.incomplete-*")
    assert aside.read_bytes() == content


def test_the_board_of_a_half_made_database_is_empty(tmp_path: Path) -> None:
    database = open_database(Store(f"sqlite:///{half_made(tmp_path / 'mlflow.db')}"))
    assert database.rows("select * from runs") == []
    assert len(names(tmp_path)) == 2


def test_what_another_process_makes_stays(tmp_path: Path, whole: Path) -> None:
    """It has the lock; once it is done, its database is used."""
    path, runs = half_made(tmp_path / "mlflow.db"), list[str]()
    other = threading.Thread(target=lambda: runs.append(Store(f"sqlite:///{path}").experiment("pcl/a")))
    with creation_lock(path):
        other.start()
        other.join(1)
        assert other.is_alive()
        assert names(tmp_path) == ["mlflow.db"]
        shutil.copy(whole, path)
    other.join(DEADLINE_S)
    assert runs == ["1"]
    assert names(tmp_path) == ["mlflow.db"]


def test_what_mlflow_itself_makes_meanwhile_stays(
    tmp_path: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`mlflow server` has no lock of ours, but writes while a new database is made."""
    path = half_made(tmp_path / "mlflow.db")
    monkeypatch.setattr(mlflow_creation, "_make", lambda new, _: [shutil.copy(whole, new), shutil.copy(whole, path)])
    inode = path.stat().st_ino
    ensure_database(path, tmp_path)
    assert (path.stat().st_ino, names(tmp_path)) == (inode, ["mlflow.db"])
    path.unlink()
    ensure_database(path, tmp_path)  # there was none when it began
    assert names(tmp_path) == ["mlflow.db"]
    assert not capsys.readouterr().err


def test_a_whole_database_stays(tmp_path: Path, whole: Path) -> None:
    """Also one that nobody has used, as `mlflow db upgrade` leaves it, and one of an older version with runs."""
    path = Path(shutil.copy(whole, tmp_path / "mlflow.db"))
    for change in ("delete from experiments", "insert into experiments (name) values ('x')",
                   "update alembic_version set version_num = 'older'", "delete from alembic_version"):  # fmt: skip
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(change)
        content = path.read_bytes()
        ensure_database(path, tmp_path)
        assert path.read_bytes() == content
        assert names(tmp_path) == ["mlflow.db"]


def test_another_programs_database_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table trials (number integer)")
        connection.execute("create table alembic_version (version_num text)")
    content = path.read_bytes()
    with pytest.raises(ValueError, match="a database of another program, with tables such as trials") as error:
        Store(f"sqlite:///{path}").check()
    assert "\n" not in str(error.value)
    assert path.read_bytes() == content
    assert names(tmp_path) == ["mlflow.db"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    link, path = tmp_path / "mlflow.db", tmp_path / "disk" / "tracking.db"
    path.parent.mkdir()
    link.symlink_to(path)
    ensure_database(link, tmp_path)
    path.unlink()
    half_made(path)
    ensure_database(link, tmp_path)
    assert link.is_symlink()
    assert revision(path)
    assert len(names(path.parent)) == 2


def test_a_new_database_replaces_nothing_and_takes_no_old_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.db"
    (tmp_path / "x.db-journal").write_text("of a file that is gone")
    with new_database(path) as new:
        new.write_text("first")
        put(new, path)
    assert path.read_text() == "first"
    assert [name.split("-")[1] for name in names(tmp_path)[1:]] == ["journal.incomplete"]
    with new_database(path) as new:
        new.write_text("second")
        put(new, path)
    assert path.read_text() == "first"
    path.unlink()

    def refused(*_: object) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", refused)
    with new_database(path) as new:
        new.write_text("third")
        put(new, path)
    assert path.read_text() == "third"


WRITER = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("pragma cache_size = 2")
connection.execute("update words set word = 'after'")
os._exit(0)
"""


def test_what_a_killed_writer_had_begun_is_taken_back_by_readers_too(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("create table words (word text, padding text)")
        connection.executemany("insert into words values ('before', ?)", [("x" * 500,)] * 2000)
    subprocess.run([sys.executable, "-c", WRITER, str(path)], check=True, timeout=DEADLINE_S)
    assert (tmp_path / "x.db-journal").exists()
    with closing(read_only(path)) as connection:
        assert connection.execute("select distinct word from words").fetchall() == [("before",)]
