"""A trial's reports and its result, as they are kept in its folder."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from pcl.config.failure import Failure

Metrics = dict[str, float]


def now_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Status(Enum):
    """An ending of a trial."""

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"  # early, by a scheduler: what it has reached is not the whole


@dataclass(frozen=True)
class Row:
    """A published report.

    Attributes:
        batch: Batches trained.
        n_batches: Of how many.
        time_ms: When it was first published, in milliseconds since 1970; never changes afterwards.
        seconds: Spent training.
        by_seed: Metrics of every seed.
        failures: Of seeds that have ended early.
    """

    batch: int
    n_batches: int
    time_ms: int
    seconds: float
    by_seed: dict[int, Metrics]
    failures: dict[int, Failure]

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Row":
        """Read JSON, whose keys are text."""
        by_seed = {int(seed): _from_json(metrics) for seed, metrics in content["by_seed"].items()}
        failures = {int(seed): Failure.of(failure) for seed, failure in content["failures"].items()}
        return cls(**{**content, "seconds": float(content["seconds"]), "by_seed": by_seed, "failures": failures})

    def as_json(self) -> dict[str, Any]:
        """Return what `of` reads."""
        by_seed = {seed: _to_json(metrics) for seed, metrics in self.by_seed.items()}
        failures = {seed: failure.as_json() for seed, failure in self.failures.items()}
        seconds = _to_json({"seconds": self.seconds})
        return {**asdict(self), **seconds, "by_seed": by_seed, "failures": failures}

    @property
    def metrics(self) -> Metrics:
        """Return the mean over the seeds that have not failed, or over all if all have."""
        chosen = [m for seed, m in self.by_seed.items() if seed not in self.failures] or list(self.by_seed.values())
        return {key: sum(metrics[key] for metrics in chosen) / len(chosen) for key in chosen[0]} if chosen else {}


@dataclass(frozen=True)
class Result:
    """An ending of a trial.

    Attributes:
        status: Finished, failed or stopped early.
        failure: Why it has not finished; none where it has.
        traceback: Where, if it was an exception.
        time_ms: When.
        hardware: What it ran on.
        wall_s: What the last worker spent on it, with set-up and evaluations.
        reused_from: Study that had run the same trial before, whose result this is.
        node: Ray's identifier of the node that ended it.
        row: The last report of a reused trial, which has no others.
    """

    status: Status
    failure: Failure | None = None
    traceback: str = ""
    time_ms: int = field(default_factory=now_ms)
    hardware: str = ""
    wall_s: float = 0.0
    reused_from: str = ""
    node: str = ""
    row: Row | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Result":
        """Read JSON; older records have a sentence, `cause`, in place of a failure."""
        row, failure = content.get("row"), content.get("failure") or content.get("cause")
        typed = {
            "status": Status(content["status"]), "row": Row.of(row) if row else None,
            "failure": Failure.of(failure) if failure else None,
        }  # fmt: skip
        return cls(**{**{name: value for name, value in content.items() if name != "cause"}, **typed})

    def as_json(self) -> dict[str, Any]:
        """Return what `of` reads."""
        own = {name: value for name, value in asdict(self).items() if name not in ("row", "failure")}
        typed = {"failure": self.failure, "row": self.row}
        parts = {name: part.as_json() for name, part in typed.items() if part}
        return {**own, "status": self.status.value, **parts}

    @property
    def cause(self) -> str:
        """Return a sentence that says why it has not finished; nothing where it has."""
        return str(self.failure) if self.failure else ""


def _to_json(metrics: Metrics) -> dict[str, float | str]:
    """Write NaN and infinities, which JSON lacks, as text."""
    return {key: value if abs(value) < float("inf") else str(value) for key, value in metrics.items()}


def _from_json(metrics: Mapping[str, float | str]) -> Metrics:
    return {key: float(value) for key, value in metrics.items()}
