import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from launch.shared.command import run
from launch.testbed.processes import DEADLINE_S, ROOT
from pcl.studies.cluster import loss as ray_loss
from pcl.studies.cluster.loss import Daemons
from pcl.studies.execution.interrupt import Interrupt


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, str]]:
    """Somebody who listens, and where; what is lost in a test is lost in it alone."""
    monkeypatch.setattr(ray_loss, "_kept", [])
    monkeypatch.setattr(ray_loss, "_GRACE_S", 0.2)
    monkeypatch.setattr(ray_loss, "_WATCH_S", 1e4)  # in tests of signals, nobody else looks
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"127.0.0.1:{server.getsockname()[1]}"


def daemons(gcs: str, *nodes: str) -> Daemons:
    return Daemons(gcs, lambda: nodes or [gcs], patience_s=0.0)


def test_tune_is_left_where_ray_ends_with_it(daemon: tuple[socket.socket, str]) -> None:
    server, address = daemon
    interrupt, said = Interrupt(), []
    with interrupt.on_ctrl_c(said.append):
        with interrupt.leaving.without(daemons(address), interrupt.on_lost_ray):
            server.close()
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("went on")
        assert ray_loss.is_lost()
        assert str(interrupt.stop) == "stopped"
        with pytest.raises(KeyboardInterrupt):  # told twice
            signal.raise_signal(signal.SIGTERM)
    assert len(said) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tune_stops_by_itself_where_ray_is_there(number: signal.Signals, daemon: tuple[socket.socket, str]) -> None:
    _, address = daemon
    interrupt = Interrupt()
    with interrupt.on_ctrl_c(lambda _: None):
        with interrupt.leaving.without(daemons(address), interrupt.on_lost_ray):
            signal.raise_signal(number)
            assert interrupt.is_set()
        with (
            pytest.raises(KeyboardInterrupt),
            interrupt.leaving.without(daemons(address), interrupt.on_lost_ray),
        ):  # told twice
            signal.raise_signal(number)
    assert not ray_loss.is_lost()


def test_ray_is_not_asked_after_tune(daemon: tuple[socket.socket, str]) -> None:
    server, _ = daemon
    server.close()
    interrupt = Interrupt()
    with interrupt.on_ctrl_c(lambda _: None):
        signal.raise_signal(signal.SIGTERM)
    assert not ray_loss.is_lost()


@pytest.mark.parametrize("code", [1, 130])
def test_a_command_that_lost_ray_ends_with_its_code(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_loss, "_kept", [KeyboardInterrupt()])
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)

    def main() -> None:
        raise KeyboardInterrupt if code == 130 else SystemExit(code)

    with pytest.raises(SystemExit):
        run(main)
    assert codes == [code]


def listening() -> tuple[socket.socket, str]:
    server = socket.create_server(("127.0.0.1", 0))
    return server, f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(("lost", "cause"), [("gcs", "gcs_server"), ("node", "last node")])
def test_tune_is_left_where_ray_is_killed(
    lost: str, cause: str, daemon: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_loss, "_WATCH_S", 0.01)
    server, address = daemon
    node, of_node = listening()
    interrupt = Interrupt()
    with interrupt.on_ctrl_c(lambda _: None):
        with interrupt.leaving.without(daemons(address, of_node), interrupt.on_lost_ray):
            (server if lost == "gcs" else node).close()
            time.sleep(DEADLINE_S)
            pytest.fail("went on")
        assert ray_loss.is_lost()
        assert cause in str(interrupt.stop)
    node.close()


def test_tune_goes_on_where_a_node_of_several_is_lost(
    daemon: tuple[socket.socket, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it does where Ray does not answer, or names other nodes than before."""
    monkeypatch.setattr(ray_loss, "_WATCH_S", 0.01)
    monkeypatch.setattr(ray_loss, "_ASK_S", 0.0)
    _, address = daemon
    first, of_first = listening()
    second, of_second = listening()
    interrupt, answers = Interrupt(), [[of_first], [], [of_first, of_second], [], [of_second]]
    n_asked = 0

    def nodes() -> list[str]:
        nonlocal n_asked
        n_asked += 1
        if not (answer := answers[min(n_asked, len(answers)) - 1]):
            raise RuntimeError("busy")
        return answer

    with interrupt.leaving.without(Daemons(address, nodes, 0.0), interrupt.on_lost_ray):
        while n_asked < 10:
            time.sleep(0.01)
            if n_asked > 3:
                first.close()
    second.close()
    assert not interrupt.stop
    assert not ray_loss.is_lost()


STUCK = """
import ctypes
from pcl.studies.cluster import loss as ray_loss
ray_loss._WATCH_S = ray_loss._STUCK_S = 0.1
leaving = ray_loss.Leaving()
leaving.how_to_go_on = lambda: "this goes on"
leaving.record = lambda: print("recorded")
mutex = ctypes.create_string_buffer(128)
with leaving.without(ray_loss.Daemons("127.0.0.1:1", list, 0.0), lambda _: None):
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)  # as Ray's own code, the second lets no handler run
"""


def test_a_driver_that_is_stuck_in_ray_says_how_to_go_on() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", STUCK], cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ended.returncode == 1
    assert "gcs_server" in ended.stderr
    assert "this goes on" in ended.stderr
    assert "recorded" in ended.stdout
