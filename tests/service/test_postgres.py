"""MLflow over PostgreSQL, as a team has it: two users at once, and a database that is killed under them."""

import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from launch.testbed.mlflow import count
from launch.testbed.processes import Server, answers, kill_group, started, stop_when
from tests.support.compose import PASSWORD as ENVIRONMENT
from tests.support.compose import composed, words
from tests.support.postgres import PASSWORD, Postgres, missing, postgres
from tests.support.services import (
    GRID,
    INLINE,
    LONG,
    ONE_WORKER,
    Home,
    Records,
    check_undisturbed,
    free_port,
    go_on,
    home,
    long_alone,
    wait_for,
)
from tests.support.trackers import artifact, opened, runs_of

EXPECTED_SECONDS = 190
OUTAGE_S = 10.0

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "all is there")]


@pytest.fixture(scope="module")
def database() -> Iterator[Postgres]:
    with postgres() as found:
        yield found


@pytest.fixture
def server(database: Postgres, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """MLflow over the database, with its artifact proxy."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    found = Server(tmp_path, database=database.uri)
    try:
        found.start()
        yield found
    finally:
        found.kill()


def test_a_database_that_dies_under_two_users_loses_and_doubles_nothing(
    joined: Home, database: Postgres, server: Server
) -> None:
    """One user's study lives through it, on Ray; the other's ends meanwhile, in its own process, and is resumed."""
    with home() as own:
        tracking, users = ["--tracking-uri", server.uri], {"ann": joined, "ben": own}
        study = ["--space", joined.space("long", GRID, LONG), "--scale", "smoke", *tracking]
        ann = joined.start(*study, "--name", "ann", *ONE_WORKER)
        ben = own.start(*study, "--name", "ben", *INLINE)
        drivers = stop_when(lambda: [ben.process.pid], lambda: own.n_reports("ben") >= 7, "ben has reports")
        workers = joined.hold_at("ann", 7)
        wait_for(lambda: Records(server.uri, "ann").runs("trial"), "ann's first trial is recorded")

        database.kill()
        killed, n_before = time.monotonic(), joined.n_reports("ann")
        go_on(drivers)
        ben.ended()
        assert "MLflow lacks" in ben.said
        go_on(workers)
        workers = joined.hold_when(lambda: joined.n_reports("ann") > n_before + 2, "ann's training goes on")
        time.sleep(max(0.0, killed + OUTAGE_S - time.monotonic()))
        database.start()
        go_on(workers)
        ann.ended()
        assert "MLflow lacks" not in ann.said
        own.run("--resume", "ben", *tracking, *INLINE)

        for name, user in users.items():
            check_undisturbed(user.study(name), long_alone(), server.uri)
            assert count(server.uri, user.study(name), list(long_alone())) == (0, 0)
            verified = own.run(name, *tracking, "--storage", user.storage, script="launch/verify.py")
            assert f"{name}: sound (4 trials, 4 ended" in verified.said
        assert list((server.folder / "served").rglob("config.yaml"))  # artifacts went through the server

        refused = own.run(*study, "--name", "ann", *INLINE, code=2)
        assert "has a study 'ann' of" in refused.errors

        own.run("--export", own.path / "board", *tracking, script="launch/board.py")
        overview = (own.path / "board" / "index.html").read_text()
        for name in users:
            assert f">{name}</a>" in overview


def status(url: str, host: str) -> int:
    """The status of an answer to a request by this name of the server."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host})) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_the_commands_of_the_compose_file_serve_a_team(database: Postgres, tmp_path: Path) -> None:
    """Without Docker: on ports and in folders of this test, and with this machine's name for its services'."""
    services, port, board_port = composed(ENVIRONMENT), free_port(), free_port()
    uri, api = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/get?experiment_id=0"
    here = {"0.0.0.0": "127.0.0.1", "5000": str(port)}
    of_mlflow = words(services["mlflow"], {**here, "postgres:5432/mlflow": database.address, "=/": f"={tmp_path}/"})
    of_board = words(services["board"], {**here, "8300": str(board_port), "http://mlflow": "http://127.0.0.1"})
    begun = []

    def begin(name: str, command: list[str], health: str) -> None:
        environment = {**os.environ, **services[name]["environment"]}
        begun.append(started([sys.executable, *command], tmp_path / f"{name}.out", environment))
        process = begun[-1].process
        wait_for(lambda: process.poll() is not None or answers(health), f"{name} answers")
        assert process.poll() is None, begun[-1].errors

    try:
        begin("mlflow", ["-m", *of_mlflow], f"{uri}/health")
        assert [status(api, f"{name}:{port}") for name in ("mlflow", "127.0.0.1", "evil.example")] == [200, 200, 403]
        tracker = opened(uri, "team")
        (run,) = runs_of(tracker, "team", "study")
        tracker.store.text(run.info.run_id, "note.txt", "kept")
        assert artifact(tracker, run, "note.txt", tmp_path) == "kept"
        assert list((tmp_path / "artifacts").rglob("note.txt"))

        board = f"http://127.0.0.1:{board_port}/"
        begin("board", of_board[1:], f"{board}board.json")

        def page() -> str:
            with urllib.request.urlopen(board) as answer:
                return str(answer.read().decode())

        wait_for(lambda: ">team</a>" in page(), "the board lists the study")
        assert f'href="{uri}/#/experiments' in page()
    finally:
        for one in begun:
            kill_group(one.process)
