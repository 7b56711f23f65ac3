"""Workplace of a round: its study's folder, commands and processes, and what is left of them."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from launch.benchmarks.chaos.contents import contents
from launch.benchmarks.chaos.drawing import BASE, DRIVER, GCS, GROUP, KINDS, RAYLET, SERVER, WORKER, Round
from launch.benchmarks.chaos.verdict import Findings
from launch.testbed.forks import forked, in_fork, uninterrupted
from launch.testbed.processes import (
    DEADLINE_S,
    Server,
    Started,
    answers,
    command_of,
    free_port,
    processes_of,
    signal_all,
    started,
    wait_for,
    workers_among,
)
from pcl.studies.ledger.folders import StudyFolder

_ENDING_S = 300.0  # by then, terminated processes have ended, on a busy machine too
_UNFINISHED = ("*.tmp", ".probe-*", ".*.new")  # names of files that are still being written


class Service:
    """MLflow server for all rounds, behind a proxy that can fail; both are started on demand."""

    def __init__(self, folder: Path) -> None:
        self.failing = folder / "failing"  # while it exists, the proxy answers 500
        self.server, self._port = Server(folder), free_port()
        self._proxy: Started | None = None
        folder.mkdir(parents=True)

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Start what is not running; this ends any fault."""
        self.failing.unlink(missing_ok=True)
        if self.server.process is None or self.server.process.poll() is not None:
            self.server.kill()  # processes that it has left
            self.server.start()
        if self._proxy is None:
            words = ["-m", "launch.testbed.failing_proxy", self._port, self.server.port, self.failing]
            self._proxy = started([sys.executable, *map(str, words)], self.failing.with_name("proxy"), os.environ)
        wait_for(lambda: answers(f"{self.uri}/health"), "the MLflow server answers through the proxy")

    def restart(self) -> None:
        """Restart the server, even if it is about to end."""
        self.server.kill()
        self.start()

    def processes(self) -> list[int]:
        """Return the server's processes."""
        process = self.server.process
        return [] if process is None or process.poll() is not None else _of_sessions({process.pid})

    def forget(self, study: str) -> None:
        """Forget a study: later rounds train the same trials and must not reuse its results."""
        if self.server.process is not None:
            forget(self.server.database, study)

    def end(self) -> None:
        """End both."""
        self.server.kill()
        if self._proxy is not None:
            self._proxy.kill()


@dataclass
class Place:
    """A round's folder, with the commands that run in it."""

    round: Round
    path: Path
    service: Service
    uri: str = ""  # the MLflow server's address; empty where MLflow is a file
    drivers: list[Started] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in (self.path, self.storage, self.temporary):
            path.mkdir()
        self.space.write_text(KINDS[self.round.kind].space())

    @property
    def storage(self) -> Path:
        return self.path / "runs"

    @property
    def temporary(self) -> Path:
        """Return the folder for temporary files of its commands."""
        return self.path / "tmp"

    @property
    def space(self) -> Path:
        return self.path / "space.py"

    @property
    def study(self) -> StudyFolder:
        return StudyFolder(self.storage / f"round{self.round.number}")

    @property
    def database(self) -> str:
        """Return the address of the database with its records, whether a server or the driver writes them."""
        return self.service.server.database if self.uri else f"sqlite:///{self.storage / 'mlflow.db'}"

    @property
    def where(self) -> list[str]:
        """Return the options of all its commands."""
        return ["--storage", str(self.storage), *(["--tracking-uri", self.uri] if self.uri else [])]

    def begin(self, first: Callable[[], object] = int) -> Started:
        """Start the study."""
        kind = KINDS[self.round.kind]
        new = ["--space", str(self.space), "--scale", "smoke", "--name", self.study.name, *kind.options]
        return self.start("launch/grid.py", *new, *kind.resume_options, is_ray=self.round.is_ray, first=first)

    def resume(self) -> Started:
        """Start the command that resumes the study."""
        options, is_ray = KINDS[self.round.kind].resume_options, self.round.is_resumed_on_ray
        return self.start("launch/grid.py", "--resume", self.study.name, *options, is_ray=is_ray)

    def start(self, script: str, *words: str, is_ray: bool = False, first: Callable[[], object] = int) -> Started:
        """Start a command: as a new process on Ray, else forked."""
        output = self.path / f"{len(self.drivers) + 1}.out"
        environment = {
            **os.environ, "RAY_TMPDIR": str(self.path), "TMPDIR": str(self.temporary), "PCL_RAY_DASHBOARD": "0",
        }  # fmt: skip
        command = [script, *words, *self.where]
        if is_ray:
            self.drivers.append(started([sys.executable, *command], output, environment))
        else:
            inline = ["--runner", "inline"] if script == "launch/grid.py" else []
            with uninterrupted():  # so that a stopped benchmark knows, and ends, the driver
                self.drivers.append(forked([*command, *inline], output, environment, first))
        return self.drivers[-1]

    def verified(self) -> tuple[int, list[dict[str, str]], str]:
        """Return the exit code of `launch/verify.py`, the problems that it names, and its errors.

        Raises:
            RuntimeError: If its JSON cannot be read.
        """
        verifier = self.start("launch/verify.py", self.study.name, "--json")
        code, said = verifier.process.wait(DEADLINE_S), verifier.said
        try:
            problems = json.loads(said)[0].get("problems", []) if code == 0 or (code == 1 and said) else []
        except (ValueError, LookupError) as error:
            raise RuntimeError(f"verify.py ended with {code} and printed no readable JSON: {said[:200]!r}") from error
        return code, problems, verifier.errors.strip()

    def targets(self) -> list[int]:
        """Return the running processes that the fault targets."""
        target = self.round.target
        if target == SERVER:
            return self.service.processes()
        driver = self.drivers[0].process
        if target in (DRIVER, GROUP):
            return [driver.pid] if driver.poll() is None else []
        ours = processes_of(self.path)
        if target == WORKER:
            return workers_among(ours)[:1]
        names = {RAYLET: "/raylet", GCS: "/gcs_server"}
        return [pid for pid in ours if command_of(pid).partition(" ")[0].endswith(names[target])]

    def processes(self) -> list[int]:
        """Return all running processes of its commands, including those started by Ray."""
        own = {driver.process.pid for driver in self.drivers}
        return sorted({*_of_sessions(own), *processes_of(self.path)})

    def left_over(self) -> list[str]:
        """Return what is left after all commands: processes that have not ended in time, and unfinished files."""
        self._wait_for_processes()
        told = [f"process {pid} ({command_of(pid)[:80]})" for pid in self.processes()]
        unfinished = [path for name in _UNFINISHED for path in self.storage.rglob(name)]
        return told + [str(path) for path in [*unfinished, *self.temporary.iterdir()]]

    def clear_temporary(self) -> None:
        """Delete the temporary files that a killed process leaves, once no process can write more."""
        self._wait_for_processes()
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.temporary.mkdir(exist_ok=True)

    def _wait_for_processes(self) -> None:
        """Wait until no process is left, for a limited time."""
        with contextlib.suppress(TimeoutError):
            wait_for(lambda: not self.processes(), "no process left", _ENDING_S)

    def note_threads(self) -> None:
        """Write down what the threads of its processes wait for in the kernel."""
        lines = []
        for pid in self.processes():
            lines.append(f"{pid} {command_of(pid)}")
            for name in sorted(Path(f"/proc/{pid}/task").glob("*/wchan")):
                with contextlib.suppress(OSError):
                    lines.append(f"  {name.with_name('comm').read_text().strip()}: {name.read_text()}")
        (self.path / "threads.txt").write_text("\n".join(lines) + "\n")

    def end_all(self) -> None:
        """Kill all that still runs."""
        signal_all(self.processes(), signal.SIGKILL)
        for driver in self.drivers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                driver.process.wait(DEADLINE_S)

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.path, ignore_errors=True)

    def findings(self) -> Findings:
        """Return the study's findings."""
        return Findings(**in_fork(contents, self.study.path, self.database))


def forget(uri: str, study: str) -> None:
    """Move a study's runs in MLflow to the bin."""
    in_fork(_forget, uri, study)


def _forget(uri: str, study: str) -> None:
    from pcl.studies.tracking.store import Store  # noqa: PLC0415  bench.py -h answers at once
    from pcl.studies.tracking.tags import EXPERIMENTS, Tag  # noqa: PLC0415  bench.py -h answers at once

    store = Store(uri)
    for run in store.find(store.experiments(EXPERIMENTS), {Tag.STUDY: study}):
        store.delete(run.info.run_id)


def train_once() -> None:
    """Train a small encoder, so that forked processes inherit the tables that a process makes once."""
    from pcl.config.run_config import RunConfig  # noqa: PLC0415  bench.py -h answers at once
    from pcl.training.run import Run  # noqa: PLC0415  bench.py -h answers at once

    config = RunConfig.of(BASE, profile="reference", scale="smoke")
    for _ in Run(config, (1,)):
        pass


def make_database(folder: Path) -> None:
    """Make MLflow's database, as a first study does."""
    folder.mkdir()
    in_fork(_make_database, folder)


def _make_database(folder: Path) -> None:
    from pcl.studies.tracking.store import Store, default_uri  # noqa: PLC0415  bench.py -h answers at once

    Store(default_uri(folder)).experiments("")


def _of_sessions(sessions: set[int]) -> list[int]:
    """Return the running processes of these sessions, without zombies."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
            state, _, _, session = file.read().rpartition(")")[2].split()[:4]
            if int(session) in sessions and state not in "ZX":
                found.append(int(name))
    return found


def slept(driver: Started, seconds: float) -> bool:
    """Sleep, at most until the driver ends; return whether it still runs."""
    deadline = time.monotonic() + seconds
    while driver.process.poll() is None:
        if (left := deadline - time.monotonic()) <= 0:
            return True
        time.sleep(min(left, 0.01))
    return False
