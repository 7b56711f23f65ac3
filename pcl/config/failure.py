"""The reason why a trial or a seed did not finish, as data; it becomes a sentence where it is shown.

Imports nothing of the package: readers of records need this module without torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class FailureKind(Enum):
    """A kind of failure; its value is its name in records."""

    NAN = "nan"
    RUNAWAY_KAPPA = "runaway_kappa"  # the median kappa passed `training.kappa_limit`
    LOSS_NOT_FINITE = "loss_not_finite"
    DIVERGED = "diverged"  # every seed of a trial failed; the detail names the failure of each
    OUT_OF_MEMORY = "out_of_memory"
    ERROR = "error"  # an exception, or a failure without a kind of its own
    WORKER_DIED = "worker_died"
    NO_RESULT = "no_result"  # workers ended, and none left a result
    STOPPED_EARLY = "stopped_early"  # by a scheduler
    NOT_RUN = "not_run"

    @classmethod
    def _missing_(cls, value: object) -> "FailureKind":
        """Treat a kind that only a newer version knows as an error."""
        return cls.ERROR

    @property
    def is_of_machine(self) -> bool:
        """Return whether the machine is to blame, not the trial; a resumed study then runs the trial again."""
        return self in (FailureKind.WORKER_DIED, FailureKind.NO_RESULT)


_OPENINGS = {
    FailureKind.NAN: "the encoder returns NaN ",
    FailureKind.RUNAWAY_KAPPA: "runaway kappa: ",
    FailureKind.LOSS_NOT_FINITE: "the loss is ",
    FailureKind.OUT_OF_MEMORY: "out of memory: ",
    FailureKind.WORKER_DIED: "worker died: ",
    FailureKind.NO_RESULT: "worker died without a result",
    FailureKind.STOPPED_EARLY: "stopped early ",
    FailureKind.NOT_RUN: "not run",
}


@dataclass(frozen=True)
class Failure:
    """A failure; `str` is its sentence for people.

    Example:
        >>> str(Failure(FailureKind.LOSS_NOT_FINITE, "nan at batch 8"))
        'the loss is nan at batch 8'
    """

    kind: FailureKind  # for programs
    detail: str = ""  # specifics, for people: an error's line, a batch, a value

    def __str__(self) -> str:
        return _OPENINGS.get(self.kind, "") + self.detail or "unknown"

    @classmethod
    def of(cls, content: Mapping[str, str] | str) -> "Failure":
        """Read what `as_json` returned or, in older records, a sentence."""
        if isinstance(content, str):
            return failure_of_old_sentence(content)
        return cls(FailureKind(content["kind"]), content["detail"])

    def as_json(self) -> dict[str, str]:
        """Return the JSON form that `of` reads."""
        return {"kind": self.kind.value, "detail": self.detail}


def failure_of_old_sentence(sentence: str, seed: str = "") -> Failure:
    """Parse the sentence of a record written before failures had kinds; nothing else parses sentences.

    `seed` is the only seed of a trial, which the sentence may name.

    Example:
        >>> failure_of_old_sentence("seed 4: the loss is nan at batch 8", "4")
        Failure(kind=<FailureKind.LOSS_NOT_FINITE: 'loss_not_finite'>, detail='nan at batch 8')
    """
    sentence = sentence.removeprefix(f"seed {seed}: ") if seed else sentence
    if sentence == "the worker ended without a result":
        return Failure(FailureKind.NO_RESULT)
    if sentence.startswith("seed "):
        return Failure(FailureKind.DIVERGED, sentence)
    for kind, opening in _OPENINGS.items():
        if sentence.startswith(opening):
            return Failure(kind, sentence.removeprefix(opening))
    return Failure(FailureKind.ERROR, sentence)
