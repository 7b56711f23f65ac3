"""A broken invariant of a study's records, and what mends it."""

from dataclasses import dataclass
from enum import Enum


class Remedy(Enum):
    """A way to mend a problem, in words."""

    RESUME = "resuming the study mends it"
    RETRAIN = "delete the trial's folder, in the object store if it has one; resuming the study trains it again"
    RERECORD = "delete the run in MLflow; resuming the study records it again"
    DELETE = "delete it; resuming the study writes it again where it is needed"
    ORPHAN = "delete it, unless another storage on this server has the same study"


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
