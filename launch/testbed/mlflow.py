"""MLflow of a tested study: a server that may go and come, or is slow; and what it has in the end."""

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

from launch.testbed.processes import ROOT, Server, answers, free_port, wait_for
from pcl.studies.tracking.tags import EXPERIMENTS, RunKind, RunState, Tag

if TYPE_CHECKING:
    from pcl.studies.ledger.folders import StudyFolder


class Tracking:
    """An MLflow server and, where requests are to be slow, a proxy before it.

    Args:
        folder: Of its files.
        prefix: Words that run a command beside the driver.
        delay_s: Of every request.
        is_served: Whether there is a server at all, and not its database alone.
    """

    def __init__(self, folder: Path, prefix: tuple[str, ...], delay_s: float, is_served: bool) -> None:
        self.server, self._is_served = Server(folder, prefix=prefix), is_served
        self._port, self._delay_s, self._prefix = free_port(), delay_s, prefix
        self._proxy: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        """Return the address that the study is given."""
        if not self._is_served:
            return self.database
        return f"http://127.0.0.1:{self._port}" if self._delay_s else self.server.uri

    @property
    def database(self) -> str:
        return f"sqlite:///{self.server.folder / 'server.db'}"

    def __enter__(self) -> Self:
        try:
            if self._is_served:
                self.server.start()
            if self._delay_s:
                self._start_proxy()
        except BaseException:  # Ctrl-C among them: nobody else would end what has started
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.server.kill()
        if self._proxy is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._proxy.pid, signal.SIGKILL)
            self._proxy.wait(10)

    def _start_proxy(self) -> None:
        words = ["-m", "launch.testbed.proxy", str(self._port), str(self.server.port), str(self._delay_s)]
        command, environment = [*self._prefix, sys.executable, *words], {**os.environ, "PYTHONPATH": str(ROOT)}
        self._proxy = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)
        wait_for(lambda: answers(f"{self.uri}/health", self._prefix, 2 * self._delay_s), "the proxy answers")


def count(uri: str, folder: "StudyFolder", keys: Sequence[str], metric: str = "train/loss") -> tuple[int, int]:
    """Count the runs and reports of a study that MLflow has twice or lacks, by its trials' keys and folders.

    A trial has one run, which has finished: any other of it, also one that a killed driver has left, is too many.
    """
    from pcl.studies.tracking.store import Store  # noqa: PLC0415  -h answers at once

    store = Store(uri)
    all_runs = store.find(store.experiments(EXPERIMENTS), {Tag.STUDY: folder.name, Tag.KIND: RunKind.TRIAL})
    runs = [run for run in all_runs if run.info.status == RunState.FINISHED]
    recorded, finished = (Counter(run.data.tags[Tag.TRIAL] for run in some) for some in (all_runs, runs))
    expected = Counter(keys)
    duplicates, missing = (recorded - expected).total(), (expected - finished).total()
    for run in runs:
        history = store.call(lambda client, run=run: client.get_metric_history(run.info.run_id, metric))  # type: ignore[misc]
        steps = Counter(point.step for point in history)
        rows = Counter(row.batch for row in folder.trial(run.data.tags[Tag.TRIAL]).rows())
        duplicates += (steps - rows).total()
        missing += (rows - steps).total()
    return duplicates, missing
