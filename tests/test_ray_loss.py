import signal
import socket
from collections.abc import Iterator

import pytest

from launch.command import run
from pcl.studies import ray_loss
from pcl.studies.runner import Interrupt


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, str]]:
    """Somebody who listens, and where; what is lost in a test is lost in it alone."""
    monkeypatch.setattr(ray_loss, "_kept", [])
    monkeypatch.setattr(ray_loss, "_GRACE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server, f"127.0.0.1:{server.getsockname()[1]}"


def test_tune_is_left_where_ray_ends_with_it(daemon: tuple[socket.socket, str]) -> None:
    server, address = daemon
    interrupt, said = Interrupt(), []
    with interrupt.on_ctrl_c(said.append):
        with interrupt.leaving.without(address):
            server.close()
            signal.raise_signal(signal.SIGTERM)
            pytest.fail("went on")
        assert ray_loss.is_lost()
        assert interrupt.cause == "stopped"
        with pytest.raises(KeyboardInterrupt):  # told twice
            signal.raise_signal(signal.SIGTERM)
    assert len(said) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_tune_stops_by_itself_where_ray_is_there(number: signal.Signals, daemon: tuple[socket.socket, str]) -> None:
    _, address = daemon
    interrupt = Interrupt()
    with interrupt.on_ctrl_c(lambda _: None):
        with interrupt.leaving.without(address):
            signal.raise_signal(number)
            assert interrupt.is_set()
        with pytest.raises(KeyboardInterrupt), interrupt.leaving.without(address):  # told twice
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
    monkeypatch.setattr(ray_loss.os, "_exit", codes.append)

    def main() -> None:
        raise KeyboardInterrupt if code == 130 else SystemExit(code)

    with pytest.raises(SystemExit):
        run(main)
    assert codes == [code]
