"""The site of a study's trials: a Ray cluster that is joined or started here, or this process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache

import torch

from pcl.studies.cluster.joining import check_address, on_a_node
from pcl.studies.cluster.session import available_resources, n_cores, ray_cluster, resources_at
from pcl.studies.cluster.start import NotStarted
from pcl.studies.execution.inline_runner import InlineRunner
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.ray_runner import RayRunner
from pcl.studies.execution.resources import Cost, Resources
from pcl.studies.execution.runner import TrialRunner
from pcl.studies.execution.worker import hardware_name
from pcl.studies.ledger.provenance import commit, lock_hash
from pcl.studies.report.plan import costs_of
from pcl.studies.session.request import Runner, RunRequest
from pcl.studies.space.trial import Trial

_MEASURED_S = 120.0  # how long it may take to measure trials side by side


@lru_cache
def machine(address: str | None = None) -> dict[str, float]:
    """Return the resources of the cluster at an address, or of one that would be started here."""
    if address is not None:
        return resources_at(address)
    return {"CPU": float(n_cores()), "GPU": float(torch.cuda.device_count())}


def default_scale(address: str | None) -> str:
    """Return the scale of a study that names none: `paper` where the cluster has a GPU."""
    return "paper" if machine(address).get("GPU") else "quick"


def provenance() -> tuple[str, str, str]:
    """Return commit, hash of the lock and hardware, as a study's tags have them."""
    return commit(), lock_hash(), hardware_name("cuda" if machine()["GPU"] else "cpu")


def check_site(request: RunRequest) -> None:
    """Raise a ValueError unless a trial fits here, or there is a cluster: before Ray starts, which takes a while."""
    if request.address is None:
        request.resources_of(machine()).require(machine())
    else:
        check_address(request.address)


def costs_here(trials: Sequence[Trial], resources: Resources, is_grouped: bool = False) -> list[Cost]:
    """Measure the first and the last of these trials in this process; for `is_grouped` see `probe`."""
    device = "cuda" if machine()["GPU"] and resources.gpus else "cpu"
    return costs_of(trials, device, max(1, int(resources.cpus)), is_grouped)


def costs_on_ray(trials: Sequence[Trial], resources: Resources, is_grouped: bool = False) -> list[Cost]:
    """Measure trials on a node, as a worker would; none where the cluster is busy. See `costs_here`."""
    device, n_threads = "cuda" if resources.gpus else "cpu", max(1, int(resources.cpus))
    work_s = _MEASURED_S if is_grouped else 0.0
    return on_a_node(resources.cpus, resources.gpus, work_s, costs_of, trials, device, n_threads, is_grouped) or []


@dataclass(frozen=True)
class Site:
    """A place where trials run."""

    available: Callable[[], Mapping[str, float]] = machine  # asks for the resources there are
    costs: Callable[[Sequence[Trial], Resources, bool], list[Cost]] = costs_here  # measures trials there
    dashboard: str = ""  # address of Ray's, or nothing
    runner: Callable[[Resources], TrialRunner] = InlineRunner  # makes the runner of trials from what each is given


@contextmanager
def joined(
    request: RunRequest, interrupt: Interrupt, say: Callable[[str], None], how_to_go_on: Callable[[], str]
) -> Iterator[Site]:
    """Join the requested site, Ray or this process; for the arguments see `on_ray`."""
    if request.runner is Runner.RAY:
        with on_ray(request, interrupt, say, how_to_go_on) as site:
            yield site
    else:
        with interrupt.on_ctrl_c(say):
            yield Site()


@contextmanager
def on_ray(
    request: RunRequest, interrupt: Interrupt, say: Callable[[str], None], how_to_go_on: Callable[[], str]
) -> Iterator[Site]:
    """Start or join Ray, with Ctrl-C handled here.

    `how_to_go_on` says how to continue if Ray does not start, or ends the driver with it.

    Raises:
        NotStarted: If there is no cluster at the address, or none starts here.
    """
    interrupt.leaving.how_to_go_on = how_to_go_on
    stopped = f"stopped while Ray was starting; {how_to_go_on()}"
    try:
        with interrupt.on_ctrl_c(say), ray_cluster(request.address, request.storage, say, stopped) as dashboard:
            yield Site(available_resources, costs_on_ray, dashboard, RayRunner)
    except NotStarted as error:
        raise NotStarted(f"{error}; {how_to_go_on()}.") from error
