"""Processes that are forked: a signal in between loses none of them."""

import os
import signal

import pytest

from launch.testbed.forks import Forked, _fork, uninterrupted


def test_a_signal_waits_until_a_fork_is_known() -> None:
    known: list[Forked] = []

    def forked_and_noted() -> None:
        with uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            known.append(_fork(lambda: None))

    with pytest.raises(KeyboardInterrupt):
        forked_and_noted()
    assert [process.wait() for process in known] == [0]
