"""Trials that a worker runs in this process, and what it tells."""

from typing import Any

from pcl.studies.execution.monitoring import Gauges
from pcl.studies.execution.worker import Job, run_job
from pcl.training.interleaving import interleaved


class Told(list[dict[str, Any]]):
    """A `Reporter` that keeps what it is told: the folder, and what happened."""

    node = ""

    def reported(self, job: Job, batch: int, n_batches: int, objective: float) -> None:
        self.append({"folder": job.folder, "batch": batch, "n_batches": n_batches, "objective": objective})

    def noted(self, job: Job, text: str) -> None:
        self.append({"folder": job.folder, "note": text})

    def ended(self, job: Job) -> None:
        self.append({"folder": job.folder, "ended": True})

    def unwritable(self, cause: str) -> None:
        self.append({"unwritable": cause})

    def gauges(self, **labels: str) -> Gauges:
        return Gauges(**labels)

    def of(self, kind: str) -> list[Any]:
        """Values under a key, of those that have it."""
        return [one[kind] for one in self if kind in one]


def run_jobs(jobs: list[Job], told: Told | None = None) -> None:
    """Run trials side by side, as one worker."""
    told = Told() if told is None else told
    for _ in interleaved([run_job(job, told) for job in jobs], "cpu"):
        pass
