"""Gauges for Ray's monitoring, and with it Prometheus and Grafana, of running studies.

Labels are few and bounded: a study, its stage, the loss, the objective's name, a trial's state. There is no label for
the trial: a worker takes one after the other, and Ray adds a WorkerId that tells concurrent trials apart.

All are gauges. Ray forgets a gauge seconds after its process has gone, but a counter only with the node.
"""

import math
import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Self

from pcl.studies.ledger.repeating import Repeating

if TYPE_CHECKING:
    from ray.util.metrics import Gauge

_HEARTBEAT_S = 1.0  # Ray exports at most once a second, by default every ten


@dataclass(frozen=True)
class Measure:
    """A gauge that is published, for Prometheus under the name `ray_NAME`."""

    name: str  # without Ray's prefix
    description: str
    labels: tuple[str, ...]  # their names; Ray adds those of the process and the node


_STAGE = ("study", "stage")
_TRIAL = (*_STAGE, "loss")

# By the driver:
TRIALS = Measure("pcl_trials", "Trials of a stage that wait, run, finished, were stopped or failed", (*_STAGE, "state"))
BEST_OBJECTIVE = Measure("pcl_best_objective", "Objective of the best trial of a stage so far", (*_STAGE, "metric"))
WORKER_DEATHS = Measure("pcl_worker_deaths", "Workers of a stage that died and were replaced", _STAGE)
# By workers, of the trial that they have:
OBJECTIVE = Measure("pcl_objective", "Objective at the last evaluation", (*_TRIAL, "metric"))
KAPPA_MEAN = Measure("pcl_kappa_mean", "Mean kappa of the evaluation's posteriors", _TRIAL)
SHARE_DONE = Measure("pcl_share_done", "Share of the batches that are trained", _TRIAL)
MS_PER_BATCH = Measure("pcl_ms_per_batch", "Milliseconds of training for a batch, without evaluations", _TRIAL)
GPU_MEMORY = Measure("pcl_gpu_memory_bytes", "GPU memory that the worker holds; 0 without a GPU", _TRIAL)

MEASURES = (
    TRIALS, BEST_OBJECTIVE, WORKER_DEATHS, OBJECTIVE, KAPPA_MEAN, SHARE_DONE, MS_PER_BATCH, GPU_MEMORY,
)  # fmt: skip


class Gauges(Repeating):
    """Values of this process, seen by Ray's monitoring while the context is open.

    Ray exports a value once after it was set, and drops it two exports later. A thread therefore sets all values again,
    so that they last from one report to the next, and go when the context closes. Training goes
    on even if Ray rejects a value. All measures share the labels' values, except for labels that a measure lacks.
    """

    def __init__(self, **labels: str) -> None:
        self._labels = labels
        self._values: dict[tuple[Measure, tuple[str, ...]], float] = {}
        self._lock = threading.Lock()
        super().__init__(self._tell_all, _HEARTBEAT_S, "pcl-gauges")

    def set(self, measure: Measure, value: float, **labels: str) -> None:
        """Publish a value from now on; a value that is not finite, which Ray does not take, ends its publication."""
        known = {**self._labels, **labels}
        series = measure, tuple(_ascii(known[name]) for name in measure.labels)
        with self._lock:
            self._values.pop(series, None)
            if math.isfinite(value):
                self._values[series] = value
                _tell(*series, value)

    def _tell_all(self) -> None:
        with self._lock:
            for series, value in self._values.items():
                _tell(*series, value)


class NoGauges(Gauges):
    """Gauges of a process without Ray: nothing is published."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def set(self, measure: Measure, value: float, **labels: str) -> None:
        pass


def _tell(measure: Measure, labels: tuple[str, ...], value: float) -> None:
    with suppress(Exception):  # monitoring is not worth a trial
        _gauge(measure).set(value, dict(zip(measure.labels, labels, strict=True)))


@cache
def _gauge(measure: Measure) -> "Gauge":
    from ray.util.metrics import Gauge  # noqa: PLC0415  only once the environment is set that Ray reads

    return Gauge(measure.name, measure.description, measure.labels)


def _ascii(text: str) -> str:
    """Return a label's value as Ray takes it."""
    return text.encode("ascii", "backslashreplace").decode()
