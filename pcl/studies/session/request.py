"""Typed requests: how a study is to run, where it is kept and what its trials are given. Nothing here loads torch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Literal

from pcl.studies.execution.resources import ONE, Cost, Demand, Resources, gpu_share
from pcl.studies.ledger.study_storage import Storage

AUTO: Literal["auto"] = "auto"


@dataclass(frozen=True)
class ResourceRequest:
    """A request for resources, which becomes `Resources` once the machine is known."""

    cpus: float = 1.0  # cores of a worker
    gpus: float | Literal["auto"] = AUTO  # devices of a worker, or a share of one; "auto" measures how many share one
    side_by_side: int | None = None  # trials in a worker; None takes the measured number, or one
    most_at_once: int | None = None  # bound on concurrent trials; None for as many as fit

    def __post_init__(self) -> None:
        if self.gpus is None:
            raise ValueError(f"`gpus` must be a number or {AUTO!r}, but got None.")

    def is_measured(self, available: Mapping[str, float], demand: Demand) -> bool:
        """Return whether to measure how many trials share a GPU: if it is not given and they outnumber GPUs."""
        n_gpus = available.get("GPU", 0)
        return self.gpus == AUTO and self.side_by_side is None and 0 < n_gpus < self._n_at_once(demand)

    def _n_at_once(self, demand: Demand) -> int:
        return min(demand.n_trials, self.most_at_once or demand.n_trials)

    def resources(self, available: Mapping[str, float], costs: Sequence[Cost] = (), demand: Demand = ONE) -> Resources:
        """Return a worker's resources; a share of a GPU that is measured is a whole one until costs are known."""
        side_by_side = self.side_by_side or 1
        gpus = (1.0 if available.get("GPU") else 0.0) if self.gpus == AUTO else self.gpus
        if self.is_measured(available, demand):
            on_each = math.ceil(self._n_at_once(demand) / available["GPU"])  # so that every GPU has some
            side_by_side = min(on_each, *(cost.side_by_side for cost in costs)) if costs else 1
            gpus *= gpu_share(costs, on_each) if side_by_side == 1 else 1.0
        if self.cpus < 0 or gpus < 0 or (gpus > 1 and gpus != int(gpus)):
            raise ValueError(
                f"A trial's CPUs must be at least 0, and its GPUs a share of one or a whole number, but got "
                f"{self.cpus:g} and {gpus:g}."
            )
        return Resources(self.cpus, gpus, self.most_at_once or 0, side_by_side)


@dataclass(frozen=True)
class SearchRequest:
    """A choice of search method; None takes the default."""

    kind: str | None = None  # grid, random or optuna
    n_trials: int | None = None  # of each stage of a random or Optuna search
    search_seed: int | None = None  # of draws and sampler
    sampler: str | None = None  # Optuna's: tpe or gp
    warm_start: str | None = None  # a study whose finished trials Optuna begins with
    scheduler: str | None = None  # asha, or none
    objectives: tuple[str, ...] = ()  # metrics, the first of which decides; by default the space's
    replicate: str | None = None  # "auto" for more seeds for the best


class Runner(Enum):
    """A way to run a study's trials."""

    RAY = "ray"  # workers of a cluster that is started here or joined
    INLINE = "inline"  # this process, one trial after the other


@dataclass(frozen=True)
class RunRequest:
    """A request to run a study; nothing here changes its results.

    Raises:
        ValueError: If something is asked for that trials in this process cannot have.
    """

    storage: Storage
    tracking_uri: str | None = None  # of MLflow; None for the environment's, else a database in the storage
    address: str | None = None  # of a Ray cluster; None starts one on this machine
    resources: ResourceRequest = field(default_factory=ResourceRequest)
    is_rerun: bool = False  # whether trials run again that are known already
    is_fail_fast: bool = False  # whether the first failure ends the study
    time_budget_s: float = 0.0  # after which the study stops cleanly; 0 for no bound
    finalize: bool | None = None  # whether the best run on the report seeds; None lets the scale decide
    runner: Runner = Runner.RAY  # who runs the trials

    def __post_init__(self) -> None:
        asked = {
            "An address": self.address, "A number side by side": self.resources.side_by_side,
            "A bound on concurrent trials": self.resources.most_at_once,
        }  # fmt: skip
        given = [what for what, value in asked.items() if value]
        if self.runner is Runner.INLINE and given:
            raise ValueError(f"{given[0]} is for the runner ray; inline runs one trial after the other, here.")

    def is_measured(self, available: Mapping[str, float], demand: Demand) -> bool:
        """Return whether a trial's share of a GPU is measured; trials that run one after the other have all of it."""
        return self.runner is Runner.RAY and self.resources.is_measured(available, demand)

    def is_finalized(self, scale: str) -> bool:
        return scale == "paper" if self.finalize is None else self.finalize

    def resources_of(
        self, available: Mapping[str, float], costs: Sequence[Cost] = (), demand: Demand = ONE
    ) -> Resources:
        """Return a worker's resources; for the arguments see `ResourceRequest.resources`."""
        if self.runner is Runner.RAY:
            return self.resources.resources(available, costs, demand)
        return replace(self.resources.resources(available), most_at_once=1, start_s=0.0)
