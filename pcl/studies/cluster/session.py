"""Ray in this process: a local cluster that it starts, or a running cluster that it joins."""

import atexit
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pcl.storage.files import first_line
from pcl.studies.cluster.joining import check_address, check_shared, own_token, runtime_env, use_token
from pcl.studies.cluster.loss import ELSEWHERE_S, HERE_S, Daemons, is_lost
from pcl.studies.cluster.process_end import note_ray_call
from pcl.studies.cluster.start import NotStarted, answering, end_daemons, quiet_stderr, tried
from pcl.studies.ledger.study_storage import Storage

# Read when Ray is imported, or by the processes that it starts.
_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # a third of the cost of a report
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # we handle Ctrl-C: Tune's handler makes an unfinished study look finished
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",  # Tune's state is not used
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # a page of traceback when a worker dies; we report it in one line
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_COLOR_PREFIX": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_prestart_worker_first_driver": "0",  # a worker per core at the start, none of which gets a trial
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_NUM_REDIS_GET_RETRIES": "5",  # seconds in which a cluster whose port answers must accept us
    "RAY_raylet_start_wait_time_s": "60",  # half of that, the default, is too short on a busy machine
}
_TO_START = {"RAY_gcs_server_port_wait_time_s": "120", "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "120"}
# Inherited by the workers of a local cluster, and sent to those of a joined one.
_FOR_WORKERS = {name: _ENVIRONMENT[name] for name in ("RAY_CHDIR_TO_TRIAL_DIR", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO")}
# Part of ray[default]; a plain Ray trains as well, but fails if it is asked for its dashboard.
_OF_DASHBOARD = "aiohttp_cors"
DASHBOARD = "PCL_RAY_DASHBOARD"  # 0 in the environment: no dashboard
_TOKEN = ("InvalidAuthToken", "Unauthenticated")  # one of these is in Ray's error if a token does not match
_ASK_S = 30.0  # how long a cluster may take to answer
_joined: list[str | None] = []  # addresses of the clusters that this process is in; None for its own
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container: processor time and period, in microseconds


def n_cores() -> int:
    """Return the cores that this process may use: batch systems such as Slurm and containers may restrict them."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no cgroup, or no limit: "max"
        quota, period = map(int, _CPU_LIMIT.read_text().split())
        found = min(found, quota // period)
    return max(1, found)


@contextmanager
def ray_cluster(
    address: str | None, storage: Storage | None = None, say: Callable[[str], None] = lambda _: None,
    stopped: str = "stopped while Ray was starting",
) -> Iterator[str]:  # fmt: skip
    """Start or join Ray; yield the dashboard's address, or "" if there is none.

    Args:
        address: Address of a running cluster; None starts one on this machine that ends with this process.
        storage: Storage that all nodes of a joined cluster must share.
        say: Prints a line.
        stopped: Message if a signal ends this process while Ray starts.

    Raises:
        NotStarted: If there is no cluster at the address, or none can be started here.
        ValueError: If its nodes do not share the storage.
    """
    if address is None:
        own_token()
    else:
        use_token()
    for name, value in (_ENVIRONMENT | (_TO_START if address is None else {})).items():
        os.environ.setdefault(name, value)
    with answering(stopped):
        say("starting Ray ..." if address is None else f"joining Ray at {address} ...")
        import ray  # noqa: PLC0415  reads the environment that was set

        url = _start_here(say) if address is None else _join(address)
    logging.getLogger("ray.tune").setLevel(logging.CRITICAL)  # its errors are tracebacks about state that is not used
    _joined.append(address)
    try:
        if address is not None and storage is not None:
            check_shared(storage)
        yield f"http://{url}" if url else ""
    finally:
        _joined.pop()
        if is_lost():
            end_daemons()
            _forget_ray()
        else:
            ray.shutdown()


def _forget_ray() -> None:
    """Keep Python from calling Ray, which has ended, about an uncaught exception or at exit: the call would block."""
    from ray._private import worker  # noqa: PLC0415  reads the environment that was set
    from ray.experimental import internal_kv  # noqa: PLC0415  reads the environment that was set

    atexit.unregister(worker.shutdown)
    internal_kv._internal_kv_reset()  # type: ignore[no-untyped-call]  # where Tune deletes entries at exit
    if sys.excepthook is worker.custom_excepthook:
        sys.excepthook = worker.normal_excepthook


def _start_here(say: Callable[[str], None]) -> str:
    note_ray_call()

    def start(n_tries: int) -> str:
        is_shown = n_tries == 1 and os.environ.get(DASHBOARD) != "0" and find_spec(_OF_DASHBOARD) is not None
        with quiet_stderr():
            return _init(address="local", num_cpus=n_cores(), dashboard_host="127.0.0.1", include_dashboard=is_shown)

    try:
        return tried(start, say)
    except Exception as error:  # Ray raises bare ones
        raise NotStarted(f"Ray did not start on this machine: {first_line(error).rstrip('.')}") from error


def _init(**how: Any) -> str:
    """Call `ray.init`, and return the dashboard's address."""
    import ray  # noqa: PLC0415  reads the environment that was set

    context = ray.init(log_to_driver=False, logging_level=logging.ERROR, configure_logging=True, **how)
    return str(getattr(context, "dashboard_url", "") or "")


def _join(address: str) -> str:
    note_ray_call()
    try:
        with quiet_stderr():
            _check_token(address)
            return _init(address=address, runtime_env=runtime_env(_FOR_WORKERS))
    except Exception as error:  # Ray raises bare ones
        told = f"No Ray cluster could be reached at {address}: {first_line(error).rstrip('.')}"
        if any(word in f"{error} {error.__cause__} {error.__notes__}" for word in _TOKEN):
            told = (
                f"The Ray cluster at {address} refuses this token; RAY_AUTH_TOKEN or ~/.ray/auth_token must be the "
                f"cluster's, which `ray get-auth-token` says on its head"
            )
        raise NotStarted(told) from error


def _check_token(address: str) -> None:
    """Ask a cluster at HOST:PORT for its nodes: a wrong token is refused at once; `ray.init` retries for minutes."""
    from ray._raylet import GcsClient  # type: ignore[attr-defined]  # noqa: PLC0415  reads the environment that was set

    if address.rpartition(":")[2].isdecimal():
        GcsClient(address=address).get_all_node_info(timeout=_ASK_S)


def daemons() -> Daemons:
    """Return the processes of the joined cluster."""
    import ray  # noqa: PLC0415  reads the environment that was set

    patience_s = HERE_S if _joined == [None] else ELSEWHERE_S
    return Daemons(ray.get_runtime_context().gcs_address, _raylets, patience_s)


def _raylets() -> list[str]:
    import ray  # noqa: PLC0415  reads the environment that was set

    nodes = ray.nodes()  # type: ignore[no-untyped-call]
    return [f"{node['NodeManagerAddress']}:{node['NodeManagerPort']}" for node in nodes if node["Alive"]]


def available_resources() -> dict[str, float]:
    """Return the resources of the joined cluster."""
    import ray  # noqa: PLC0415  reads the environment that was set

    return dict(ray.cluster_resources())  # type: ignore[no-untyped-call]


def resources_at(address: str) -> dict[str, float]:
    """Return the resources of a cluster, joined for this query only; a ValueError says that there is none."""
    check_address(address)
    with ray_cluster(address):
        return available_resources()
