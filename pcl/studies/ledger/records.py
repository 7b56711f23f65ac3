"""A trial's reports and its result, as they are kept in its folder."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any

from pcl.config.failure import Failure
from pcl.metrics.undefined import seed_means
from pcl.studies.ledger.typed_json import record, table, whole_key

Metrics = dict[str, float]


def now_ms() -> int:
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Status(Enum):
    """The way a trial ended."""

    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"  # early, by a scheduler: its values are not those of a whole training


@dataclass(frozen=True)
class Row:
    """A published report."""

    batch: int
    n_batches: int  # in all
    time_ms: int  # when it was first published, in milliseconds since 1970; never changes afterwards
    seconds: float  # spent training
    by_seed: dict[int, Metrics]  # metrics of every seed
    failures: dict[int, Failure]  # of seeds that have ended early

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Row":
        """Read JSON, whose keys are text."""
        found = table(table(content)["failures"])
        return record(cls, content, failures={whole_key(seed): _failure(failure) for seed, failure in found.items()})

    def as_json(self) -> dict[str, Any]:
        by_seed = {seed: _to_json(metrics) for seed, metrics in self.by_seed.items()}
        failures = {seed: failure.as_json() for seed, failure in self.failures.items()}
        seconds = _to_json({"seconds": self.seconds})
        return {**asdict(self), **seconds, "by_seed": by_seed, "failures": failures}

    @property
    def metrics(self) -> Metrics:
        return seed_means(self.by_seed, self.failures)


@dataclass(frozen=True)
class Result:
    """The result of a trial."""

    status: Status  # finished, failed or stopped early
    failure: Failure | None = None  # why it has not finished; None if it has
    traceback: str = ""  # where, if it was an exception
    time_ms: int = field(default_factory=now_ms)
    hardware: str = ""  # what it ran on
    wall_s: float = 0.0  # time of its last worker, including set-up and evaluations
    reused_from: str = ""  # study that had run the same trial before, whose result this is
    node: str = ""  # Ray's identifier of the node that ended it
    row: Row | None = None  # the last report of a reused trial, which has no others

    @classmethod
    def of(cls, content: Mapping[str, Any]) -> "Result":
        """Read JSON; older records have a sentence, `cause`, in place of a failure."""
        rest = {name: value for name, value in table(content).items() if name != "cause"}
        row, failure = rest.get("row"), rest.get("failure", content.get("cause") or None)
        return record(
            cls, rest, row=None if row is None else Row.of(row), failure=None if failure is None else _failure(failure)
        )

    def as_json(self) -> dict[str, Any]:
        own = {name: value for name, value in asdict(self).items() if name not in ("row", "failure")}
        typed = {"failure": self.failure, "row": self.row}
        parts = {name: part.as_json() for name, part in typed.items() if part}
        return {**own, "status": self.status.value, **parts}

    @property
    def cause(self) -> str:
        """Return a sentence that says why it has not finished; empty if it has."""
        return str(self.failure) if self.failure else ""


def _failure(content: Any) -> Failure:
    """Read a failure or, in older records, a sentence."""
    return Failure.of(content) if isinstance(content, str) else record(Failure, content)


def _to_json(metrics: Metrics) -> dict[str, float | str]:
    """Write NaN and infinities, which JSON lacks, as text."""
    return {key: value if abs(value) < float("inf") else str(value) for key, value in metrics.items()}
