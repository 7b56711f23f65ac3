"""Processes that are forked: a signal in between loses none of them."""

import os
import signal
import time
from collections.abc import Callable

import pytest

from launch.testbed import forks
from launch.testbed.forks import Forked, _fork, in_fork, uninterrupted
from launch.testbed.processes import DEADLINE_S


def test_a_signal_waits_until_a_fork_is_known() -> None:
    known: list[Forked] = []

    def forked_and_noted() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            known.append(_fork(lambda: None))

    with pytest.raises(KeyboardInterrupt):
        forked_and_noted()
    assert [process.wait() for process in known] == [0]


def test_a_signal_while_a_function_is_forked_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    known: list[Forked] = []

    def interrupted(work: Callable[[], None]) -> Forked:
        known.append(_fork(work))
        os.kill(os.getpid(), signal.SIGINT)
        return known[-1]

    monkeypatch.setattr(forks, "_fork", interrupted)
    with pytest.raises(KeyboardInterrupt):
        in_fork(time.sleep, DEADLINE_S)
    (process,) = known
    code = process.returncode
    process.kill()
    assert code == -signal.SIGKILL
