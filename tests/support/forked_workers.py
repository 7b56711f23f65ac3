"""The workers of pytest-xdist, forked from the process that starts them: tests and what they import are imported once.

All are forked before the first thread. They are then what `python -c BOOTSTRAP` is, with pipes for input and output.
"""

import gc
import os
import sys
import warnings
from contextlib import suppress
from functools import partial
from importlib import import_module

import pytest
from execnet import gateway_base, gateway_io

from launch.testbed.forks import THIRD_PARTY, Forked, get_ready, run_and_exit
from launch.testbed.processes import ROOT
from tests.support.fork_server import check_forkable, import_ray


class _Io(gateway_base.Popen2IO):
    """The pipes of a worker, for `execnet` in place of those of a process that it starts."""

    def __init__(self, pid: int, to: int, back: int, model: gateway_base.ExecModel) -> None:
        super().__init__(os.fdopen(to, "wb"), os.fdopen(back, "rb"), execmodel=model)
        self.popen = Forked(pid)

    def wait(self) -> int | None:
        with suppress(OSError):  # another thread has waited for it
            return self.popen.wait()
        return self.popen.returncode

    def kill(self) -> None:
        with suppress(OSError):
            self.popen.kill()


def fork_workers(config: pytest.Config) -> None:
    """Fork the workers that a test run asks for; `execnet` gets them one by one, and starts others if any is lost."""
    n_workers = config.option.tx.count("popen")
    get_ready(THIRD_PARTY)
    _import_tests()
    check_forkable()
    gc.freeze()  # what is imported stays: a collection of garbage would look through all of it, and copy its pages
    waiting: list[tuple[int, int, int]] = []
    for _ in range(n_workers):
        waiting.append(_forked([file for _, *files in waiting for file in files]))
    started = gateway_io.Popen2IOMaster

    def given(words: list[str], model: gateway_base.ExecModel) -> gateway_base.Popen2IO:
        return _Io(*waiting.pop(0), model) if waiting else started(words, model)

    gateway_io.Popen2IOMaster = given  # type: ignore[assignment, misc]


def _import_tests() -> None:
    """Import all files of tests; what cannot be imported, or warns, is told when it is collected."""
    import_ray({})
    with warnings.catch_warnings():
        warnings.filterwarnings("error", module=r"(pcl|launch|dashboards|search_spaces|tests)\b")
        for file in sorted((ROOT / "tests").rglob("test_*.py")):
            with suppress(Exception, pytest.skip.Exception):
                import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))


def _forked(of_others: list[int]) -> tuple[int, int, int]:
    """Fork a worker; return its process and the pipes to it and back."""
    (reader, to), (back, writer) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        run_and_exit(partial(_work, reader, writer, [to, back, *of_others]))
    for file in (reader, writer):
        os.close(file)
    return pid, to, back


def _work(reader: int, writer: int, of_others: list[int]) -> None:
    for file in of_others:
        os.close(file)
    for file, number in ((reader, 0), (writer, 1)):
        os.dup2(file, number)
        os.close(file)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_pytest")]
    sys.argv = ["-c"]
    if line := sys.stdin.readline():  # as `execnet` writes it; nothing if the run has ended
        exec(eval(line), {"__name__": "__main__"})
