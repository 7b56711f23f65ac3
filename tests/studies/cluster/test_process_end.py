"""A process that has called Ray ends with its code and loses nothing, whatever hangs after Python's own end."""

import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import IO

import pytest

from launch.testbed.processes import DEADLINE_S, ROOT

N_LINES = 50_000  # more than a pipe holds
COMMAND = """
import atexit, ctypes, logging.handlers, os, sys, tempfile, threading, time
atexit.register(lambda: print("an early handler"))  # such as coverage's: before the command
from launch.shared.command import run
from pcl.studies.cluster import process_end

c = ctypes.CDLL(None)
folder, hang, end, *options = sys.argv[1:]
if "hasty" in options:
    process_end._PATIENCE_S = 5
if hang == "destructor":
    getattr(c, "__cxa_atexit")(c.pause, None, None)  # where C++ registers those of its static objects
elif hang == "handler":
    atexit.register(threading.Event().wait)

def finish():
    time.sleep(0.2)
    open(f"{folder}/thread", "w").write("whole")

def main():
    global log, unclosed, temporary
    if "no Ray" not in options:
        process_end.note_ray_call()
    logger = logging.getLogger("pcl")
    logger.addHandler(logging.handlers.MemoryHandler(10**6, target=logging.FileHandler(f"{folder}/log")))
    logger.error("logged")
    unclosed = open(f"{folder}/unclosed", "w")
    unclosed.write("written")
    temporary = tempfile.TemporaryDirectory(dir=folder, prefix="temporary")
    threading.Thread(target=finish).start()
    c.printf(b"from C\\n")
    for number in range(int(options[0])):
        print("line", number)
    exec(end)

run(main)
"""
ENDS = {  # statement -> exit code
    "pass": 0, "sys.exit(3)": 3, "raise ValueError('told')": 2, "raise KeyboardInterrupt": 130,
    "{}['unexpected']": 1,
}  # fmt: skip


SCRIPT = """
import ctypes, sys
from pcl.studies.cluster import process_end

c = ctypes.CDLL(None)
getattr(c, "__cxa_atexit")(c.pause, None, None)
folder, end = sys.argv[1:]
process_end.note_ray_call()  # as `pcl.search(..., runner="ray")` does
getattr(c, "__cxa_atexit")(c.pause, None, None)  # an object that Ray makes later
unclosed = open(f"{folder}/unclosed", "w")
unclosed.write("written")
c.printf(b"from C\\n")
print("from Python")
exec(end)
"""

LOSES_RAY = """
import atexit, threading, ray
from ray._private import worker
from ray.experimental import internal_kv
from pcl.studies.cluster import loss, session

session._start_here = lambda say: ""
ray._private.state.state._connect_and_get_accessor = threading.Event().wait  # as a call does once Ray has ended
atexit.register(lambda: internal_kv._internal_kv_initialized() and threading.Event().wait())  # as Tune's handler
with session.ray_cluster(None):
    worker.global_worker.mode, worker.Worker.worker_id = worker.SCRIPT_MODE, b""
    internal_kv.global_gcs_client = object()
    loss._kept.append(KeyboardInterrupt())
    raise RuntimeError("Ray has ended")
"""


def command(folder: Path, hang: str, end: str, *options: str, n_lines: int = N_LINES) -> list[str]:
    return [sys.executable, "-c", COMMAND, str(folder), hang, end, str(n_lines), *options]


def ran(words: list[str], out: IO[str] | int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words, cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True, timeout=DEADLINE_S, check=False
    )


@pytest.fixture(autouse=True)
def _buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_file", [False, True], ids=["pipe", "file"])
def test_nothing_is_lost_where_a_destructor_hangs(
    end: str, is_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit handlers of others run, in their order; what is unwritten is written; the exit code stays."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of the traceback of what is unexpected
    with (tmp_path / "out").open("w") if is_file else nullcontext(subprocess.PIPE) as out:
        ended = ran(command(tmp_path, "destructor", end), out)
    said = (tmp_path / "out").read_text() if is_file else ended.stdout
    assert ended.returncode == ENDS[end], ended.stderr
    assert said.count("from C\n") == 1
    lines = said.replace("from C\n", "").splitlines()  # C and Python each have a buffer
    assert lines == [*(f"line {number}" for number in range(N_LINES)), "an early handler"]
    assert len(ended.stderr.strip().splitlines()) == (ENDS[end] not in (0, 3))
    assert (tmp_path / "log").read_text() == "logged\n"
    assert (tmp_path / "unclosed").read_text() == "written"
    assert (tmp_path / "thread").read_text() == "whole"
    assert not list(tmp_path.glob("temporary*"))


@pytest.mark.parametrize(("end", "code"), [
    ("pass", 0), ("sys.exit(3)", 3), ("sys.exit('why')", 1), ("raise ValueError", 1),
    ("raise KeyboardInterrupt", -signal.SIGINT),
])  # fmt: skip
def test_a_users_script_ends_with_its_own_code_where_a_destructor_hangs(end: str, code: int, tmp_path: Path) -> None:
    ended = ran([sys.executable, "-c", SCRIPT, str(tmp_path), end], subprocess.PIPE)
    assert ended.returncode == code, ended.stderr
    assert sorted(ended.stdout.splitlines()) == ["from C", "from Python"]
    assert (tmp_path / "unclosed").read_text() == "written"


def test_a_users_script_that_has_lost_ray_says_so_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's own hooks would call it: one about an exception that nobody has caught, one at exit."""
    monkeypatch.setenv("HOME", str(tmp_path))  # of Ray's token
    ended = ran([sys.executable, "-c", LOSES_RAY], subprocess.PIPE)
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith("RuntimeError: Ray has ended")


def test_a_handler_that_hangs_is_left(tmp_path: Path) -> None:
    """The others do not run where the last one that was registered hangs."""
    ended = ran(command(tmp_path, "handler", "sys.exit(3)", "hasty"), subprocess.PIPE)
    assert ended.returncode == 3
    assert [line for line in ended.stdout.splitlines() if line.startswith("line")][-1] == f"line {N_LINES - 1}"
    assert "were left" in ended.stderr
    assert (tmp_path / "unclosed").read_text() == "written"
    assert (tmp_path / "thread").read_text() == "whole"


def test_a_full_disk_is_told_and_has_pythons_code(tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ended = ran(command(tmp_path, "destructor", "pass", n_lines=10), full)
    assert ended.returncode == 120
    assert "stdout could not be written" in ended.stderr
    assert (tmp_path / "unclosed").read_text() == "written"


def test_without_ray_a_command_ends_as_python_does(tmp_path: Path) -> None:
    """So the hang of these tests is one."""
    words = command(tmp_path, "destructor", "pass", "no Ray", n_lines=10)
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            assert any("an early handler" in line for line in process.stdout)  # the last that it says
            time.sleep(1)
            assert process.poll() is None
        finally:
            process.kill()
