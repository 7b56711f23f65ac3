"""Commands forked from this process, which has imported what they need, so that none waits for imports.

Ray is not imported: it reads the environment on import, and every command has its own.
"""

import atexit
import json
import logging
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from launch.testbed.processes import DEADLINE_S, ROOT, Started

THIRD_PARTY = (
    "torch", "torchvision", "pandas", "pyarrow.fs", "pyarrow.parquet", "scipy.stats", "matplotlib.pyplot", "optuna",
    "optuna.storages", "mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.artifact.local_artifact_repo", "requests",
)  # fmt: skip
_OWN = (
    "launch.studies.grid_command", "launch.viewing.verification", "pcl.studies.execution.worker",
    "pcl.studies.execution.inline_runner", "pcl.studies.report.figures",
)  # fmt: skip
_SIGNALS = {signal.SIGINT, signal.SIGTERM}


def get_ready(names: Sequence[str] = (*THIRD_PARTY, *_OWN)) -> None:
    """Import what studies and their verification need, with one thread: others do not survive a fork."""
    os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow uses what SQLAlchemy 2.1 has deprecated
        for name in names:
            import_module(name)
    import_module("torch").set_num_threads(1)


class Forked:
    """A forked process, with the methods of `subprocess.Popen` that `Started` uses."""

    def __init__(self, pid: int) -> None:
        self.pid, self.returncode = pid, None  # type: int, int | None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if ended else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit code, or raise a TimeoutExpired."""
        deadline = time.monotonic() + (DEADLINE_S if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or DEADLINE_S)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def forked(
    words: Sequence[str | Path], output: Path, environment: Mapping[str, str], first: Callable[[], object] = int
) -> Started:
    """Start `python WORDS` as `launch.testbed.processes.started` does; `first` is called before the command."""
    empty(output)
    return Started(_fork(partial(_command, words, output, environment, first)), output)  # type: ignore[arg-type]


def empty(output: Path) -> None:
    """Create empty files for a command's output and errors, so that they can be read from now on."""
    for path in (output, output.with_suffix(".err")):
        path.write_bytes(b"")


def become(words: Sequence[str | Path], output: Path, environment: Mapping[str, str]) -> NoReturn:
    """Run `python WORDS` in this just forked process, and end it."""
    run_and_exit(partial(_command, words, output, environment))


def in_fork(work: Callable[..., Any], *arguments: object) -> Any:
    """Run a function in a process of its own; return its result, which must fit JSON, or raise its error."""
    reader, writer = os.pipe()

    def answer() -> None:
        try:
            content = {"result": work(*arguments)}
        except Exception as error:
            content = {"error": f"{type(error).__name__}: {error}"}
        with open(writer, "w") as file:
            json.dump(content, file)

    process: Forked | None = None
    try:
        with uninterrupted():  # or an unknown process would keep running
            process = _fork(answer)
        os.close(writer)
        with open(reader) as file:
            text = file.read()
    except KeyboardInterrupt:
        if process is not None:
            process.kill()
        raise
    finally:
        if process is not None:
            process.wait()
    content = json.loads(text or '{"error": "the process was killed"}')
    if "error" in content:
        raise RuntimeError(content["error"])
    return content["result"]


def _fork(work: Callable[[], None]) -> Forked:
    """Fork a process with a session of its own, which exits as Python does when the work is done."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # until the child has its own handlers
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # about the parent's threads, which no child needs
            pid = os.fork()
        if pid == 0:
            run_and_exit(work)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    return Forked(pid)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer the signals that stop this process until the block ends, so that a fork in it is known by then.

    For the main thread only. Blocking signals is not enough: another thread would take them.
    """
    came: list[int] = []
    before = {number: signal.signal(number, lambda number, _: came.append(number)) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for stopped_by in came:
            signal.raise_signal(stopped_by)


def run_and_exit(work: Callable[[], None]) -> NoReturn:
    """Do the work, run Python's exit handlers, and exit; this process must not return into its parent's code.

    The destructors of C++ code do not run: one of Ray's was seen to wait for its thread forever.
    """
    code = 1
    try:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        try:
            work()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
            if isinstance(ended.code, str):
                print(ended.code, file=sys.stderr)
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(code)


def _command(
    words: Sequence[str | Path], output: Path, environment: Mapping[str, str], first: Callable[[], object] = int
) -> None:
    """Take over a command's files, folder and environment, and run it."""
    names = [(Path(os.devnull), os.O_RDONLY), (output, os.O_WRONLY), (output.with_suffix(".err"), os.O_WRONLY)]
    for number, (name, flags) in enumerate(names):
        file = os.open(name, flags)
        os.dup2(file, number)
        os.close(file)
    # The parent may have replaced them: pytest's capture what is written.
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    logging.getLogger().handlers.clear()
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    first()
    sys.argv, sys.path[0] = [str(word) for word in words], str(Path(words[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
