"""A broken invariant of a study's records, and what mends it."""

from dataclasses import dataclass
from enum import Enum


class Remedy(Enum):
    """The way to mend a problem, as it is told."""

    RESUME = "`--resume` mends it"
    RETRAIN = "delete the trial's folder; `--resume` then trains it again"
    RERECORD = "delete the run in MLflow; `--resume` then records it again"
    DELETE = "delete it; nothing uses it"
    NONE = "it cannot be mended from what is there"


@dataclass(frozen=True)
class Problem:
    """A broken invariant.

    Attributes:
        where: The file, folder or MLflow run.
        what: What is wrong with it.
        remedy: What mends it.
    """

    where: str
    what: str
    remedy: Remedy

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.remedy.value})"
