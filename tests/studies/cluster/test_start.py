"""Ray that starts late, not at all, or not for us, without Ray."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launch.shared.command import run
from launch.studies.resume_command import GRID, Resumption
from pcl.studies.cluster import session as ray_session
from pcl.studies.cluster import start as ray_start
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.session.request import RunRequest
from pcl.studies.session.site import on_ray
from tests.support.services import wait_for


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_while_ray_starts(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a thread: the main one may be in code that runs no handler."""
    before, codes = signal.getsignal(number), list[int]()
    monkeypatch.setattr(ray_start, "end_process", codes.append)
    monkeypatch.setattr(ray_start, "end_daemons", lambda: None)
    with ray_start.answering("stopped; this goes on"), ray_start.quiet_stderr():
        signal.signal(number, signal.SIG_IGN)  # as Ray puts a handler of its own
        signal.signal(number, lambda *_: None)
        os.kill(os.getpid(), number)
        wait_for(lambda: codes, "the signal is answered")
        os.write(2, b"Exception ignored in: ...\n")  # of Ray's handler
    assert codes == [130]
    assert capfd.readouterr().err.splitlines()[1:] == [f"{sys.argv[0]}: stopped; this goes on."]
    assert signal.getsignal(number) is before


def test_what_ray_writes_is_shown_unless_it_fails(capfd: pytest.CaptureFixture[str]) -> None:
    with ray_start.quiet_stderr():
        os.write(2, b"a warning\n")
        assert not capfd.readouterr().err
    assert capfd.readouterr().err == "a warning\n"

    def fail() -> None:
        with ray_start.quiet_stderr():
            os.write(2, b"a warning\n")
            raise RuntimeError("no Ray")

    with pytest.raises(RuntimeError, match="no Ray") as failure:
        fail()
    assert failure.value.__notes__ == ["a warning\n"]
    assert not capfd.readouterr().err


@pytest.mark.parametrize(("soon_s", "n_failures", "n_tries"), [(0.0, 2, 3), (0.0, 9, 4), (1e9, 1, 1)])
def test_a_start_that_took_too_long_is_tried_again(
    soon_s: float, n_failures: int, n_tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_start, "_SOON_S", soon_s)
    monkeypatch.setattr(ray_start, "end_daemons", lambda left: None)
    tries, said = list[int](), list[str]()

    def start(number: int) -> str:
        tries.append(number)
        if number <= n_failures:
            raise Exception("timed out")  # as Ray does
        return "started"

    if n_failures < n_tries:
        assert ray_start.tried(start, said.append) == "started"
    else:
        with pytest.raises(Exception, match="timed out"):
            ray_start.tried(start, said.append)
    assert tries == list(range(1, n_tries + 1))
    assert len(said) == n_tries - 1


def ends(main: Callable[[], None], code: int, capfd: pytest.CaptureFixture[str]) -> str:
    """A command ends with a code and one line on stderr, which is returned."""
    with pytest.raises(SystemExit) as ended:
        run(main)
    assert ended.value.code == code
    (line,) = capfd.readouterr().err.splitlines()
    return line


def failing(error: Exception, cause: Exception | None = None) -> Callable[..., Any]:
    def fails(**_: object) -> None:
        os.write(2, b"[W] gcs_client.cc: something of Ray's own\n" if cause else b"")
        raise error from cause

    return fails


@pytest.mark.parametrize(
    ("address", "error", "cause", "told"),
    [
        (None, Exception("The current node timed out.\nAnd more"), None, "Ray did not start on this machine: The curr"),
        ("10.0.0.1:6379", ConnectionError("no"), RuntimeError("lost"), "No Ray cluster could be reached at 10.0.0.1"),
        ("10.0.0.1:6379", ConnectionError("no"), RuntimeError("x InvalidAuthToken: y"), "refuses this token"),
    ],
)
def test_ray_that_cannot_be_had_is_one_sentence_and_how_to_go_on(
    address: str | None, error: Exception, cause: Exception | None, told: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(ray_session, "own_token", lambda: None)
    monkeypatch.setattr(ray_session, "use_token", lambda: None)
    monkeypatch.setattr(ray_session, "_ENVIRONMENT", {})
    monkeypatch.setattr(ray_session, "_TO_START", {})
    monkeypatch.setattr("ray.init", failing(error, cause))
    monkeypatch.setattr(ray_session, "_check_token", lambda address: None)
    monkeypatch.setattr("launch.shared.command.end_without_destructors", lambda code: None)  # this process goes on

    def main() -> None:
        request = RunRequest(Storage.of(str(tmp_path)), address=address)
        with on_ray(request, Interrupt(), print, lambda: "this goes on"):
            pytest.fail("has a cluster")

    line = ends(main, 2, capfd)
    assert told in line
    assert line.endswith("; this goes on.")


def test_what_nobody_expected_is_one_sentence_and_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def main() -> None:
        with Resumption(GRID, RunRequest(Storage.of("runs"))).guard(StudyFolder(tmp_path / "s")):
            raise KeyError("no postgres://me:sec@ret@host/db\nand the statement")

    line = ends(main, 1, capfd)
    assert line.startswith(f"{sys.argv[0]}: KeyError: ")
    assert "ret@" not in line
    assert "`python launch/grid.py --resume s` goes on" in line
    (file,) = tmp_path.glob("*.txt")
    assert str(file) in line
    assert "raise KeyError" in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600

    monkeypatch.setenv("PCL_TRACEBACK", "1")
    with pytest.raises(SystemExit):
        run(main)
    assert "Traceback (most recent call last)" in capfd.readouterr().err
