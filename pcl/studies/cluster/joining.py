"""Joining a running Ray cluster: authentication, the code that is sent to its nodes, and a check of shared storage."""

import json
import os
import secrets
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pcl.data.sources import data_place
from pcl.storage.files import first_line
from pcl.storage.installation import command
from pcl.storage.mirror import Mirrored
from pcl.storage.object_stores import copy_of
from pcl.studies.ledger.study_storage import Storage

T = TypeVar("T")

LEFT_BEHIND = ["**/__pycache__", "**/*.pyc", "**/.mypy_cache", "**/.ruff_cache"]  # of an uploaded folder
_PACKAGE = Path(__file__).parents[2]
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # set by Ray in the process of a submitted job
_PROBE_S = 5.0  # how long a user waits for an unreachable cluster; Ray itself takes many minutes
_NODES_S = 120.0  # how long nodes may take to unpack the code and to answer
_ROOM_S = 60.0  # how long to wait for free resources on a busy cluster
_SYNC_S = 5.0  # how long a network file system may hide a new file from other machines


def use_token() -> None:
    """Use Ray's token if there is one; call this before Ray is imported.

    Without RAY_AUTH_MODE, a cluster demands the token, but Ray does not send it when joining one.
    """
    if _has_token():
        os.environ.setdefault("RAY_AUTH_MODE", "token")


def _has_token() -> bool:
    named = os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_TOKEN_PATH")
    return bool(named) or token_file().exists()


def token_file() -> Path:
    """Return the default path of Ray's token."""
    return Path.home() / ".ray" / "auth_token"


def own_token() -> None:
    """Create Ray's token if Ray would: Ray overwrites one that another study creates at the same time.

    Both studies would start, and one would be refused by its own cluster.
    """
    if _has_token() or os.environ.get("RAY_AUTH_MODE", "token") != "token":
        return
    path = token_file()
    with suppress(OSError):  # another process was faster, or the disk has no hard links: then Ray creates it
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent) as file:  # readable by this user only
            file.write(secrets.token_hex(32))  # the format of Ray's own
            file.flush()
            os.link(file.name, path)  # atomic


def check_address(address: str) -> None:
    """Raise a ValueError unless something listens at an address; one without a port, such as auto, is left to Ray.

    A web server, such as the cluster's own dashboard, is rejected; Ray would query it for minutes.
    """
    if address.startswith(("http://", "https://")):
        raise ValueError(
            f"`address` must be auto or HOST:PORT of a cluster that this machine is part of, or ray://HOST:PORT, but "
            f"got {address}; `{command('submit')} --address {address} -- grid ...` sends the command."
        )
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return
    try:
        connection = socket.create_connection((host.strip("[]"), int(port)), _PROBE_S)
    except (OSError, OverflowError) as error:
        raise ValueError(f"No Ray cluster can be reached at {address}: {error}.") from None
    answer = b""
    with connection, suppress(OSError):  # a cluster with TLS, for example, closes the connection
        connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
        answer = connection.recv(5)
    if answer == b"HTTP/":
        raise ValueError(
            f"No Ray cluster can be reached at {address}: that is a web server, perhaps the dashboard; the port of the "
            f"cluster itself is the one that `ray start` was given, by default 6379."
        )


def runtime_env(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the runtime environment for workers of a cluster that others started.

    The package is uploaded, unless a job already brought it: the nodes may lack it or have another version.
    """
    found: dict[str, Any] = {"env_vars": {**environment, "PCL_DATA": data_place()}}
    if not {"working_dir", "py_modules"} & set(json.loads(os.environ.get(_JOB, "{}")).get("runtime_env", {})):
        found |= {"py_modules": [str(_PACKAGE)], "excludes": LEFT_BEHIND}
    return found


def on_a_node(n_cpus: float, n_gpus: float, work_s: float, work: Callable[..., T], *arguments: Any) -> T | None:
    """Return a function's result from a node with free resources; None if it fails, or no node has any for a while.

    `work_s` is how long the work itself may take.
    """
    import ray  # noqa: PLC0415  reads the environment that was set

    try:
        task = ray.remote(num_cpus=n_cpus, num_gpus=n_gpus)(work).remote(*arguments)
        if ray.wait([task], timeout=_ROOM_S + work_s)[0]:
            found: T = ray.get(task)
            return found
        ray.cancel(task, force=True)
    except (ray.exceptions.RayError, TypeError):  # TypeError: arguments that cannot be pickled
        pass
    return None


def check_shared(storage: Storage) -> None:
    """Raise a ValueError unless every node of the joined cluster can write to the same folder or store.

    A file is written here, and a task on every node looks for it.
    """
    if storage.is_store:
        for address, why in _asked_nodes(_why_not, storage.mirror.uri):
            if why:
                raise ValueError(
                    f"`storage` must be a store that all nodes of the cluster can write to, but on {address} {why}"
                )
    else:
        _check_folder(storage.path.absolute())


def _check_folder(storage: Path) -> None:
    is_new = not storage.exists()
    storage.mkdir(parents=True, exist_ok=True)
    file, text = storage / f".probe-{uuid.uuid4().hex}", uuid.uuid4().hex
    is_shared = False
    try:
        file.write_text(text)
        for address, is_seen in _asked_nodes(_sees, str(file), text, fewest=2):
            if not is_seen:
                raise ValueError(
                    f"`storage` must be a folder on a file system that all nodes of the cluster share, or a store's "
                    f"address, but {address} cannot write to this machine's {storage}."
                )
        is_shared = True
    finally:
        with suppress(OSError):
            file.unlink()
        if is_new and not is_shared:
            with suppress(OSError):
                storage.rmdir()


def _asked_nodes(look: Callable[..., T], *arguments: str, fewest: int = 1) -> list[tuple[str, T]]:
    """Return the addresses of all nodes and their answers; empty if there are fewer nodes than asked for."""
    import ray  # noqa: PLC0415  reads the environment that was set
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy  # noqa: PLC0415  reads the environment that was set

    nodes = [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]
    if len(nodes) < fewest:
        return []
    task = ray.remote(num_cpus=0)(look)
    answers = {}
    for node in nodes:
        on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        answers[task.options(scheduling_strategy=on_node).remote(*arguments)] = node["NodeManagerAddress"]
    _, silent = ray.wait(list(answers), num_returns=len(answers), timeout=_NODES_S)
    if silent:
        raise ValueError(f"The node {answers[silent[0]]} of the cluster did not answer within {_NODES_S:g} s.")
    found = []
    for answer, address in answers.items():
        try:
            found.append((address, ray.get(answer)))
        except ray.exceptions.RayError as error:
            raise ValueError(f"The node {address} of the cluster cannot run pcl: {first_line(error)}") from None
    return found


def _sees(file: str, text: str) -> bool:
    """Return whether a file with this text is visible on this node, in a writable folder."""
    path, deadline = Path(file), time.monotonic() + _SYNC_S
    while time.monotonic() < deadline:
        with suppress(OSError):
            if path.read_text() == text:
                return os.access(path.parent, os.W_OK | os.X_OK)
        time.sleep(0.1)
    return False


def _why_not(uri: str) -> str:
    """Return why this node cannot write to a store; empty if it can."""
    try:
        Mirrored(copy_of(uri), uri).check()
    except ValueError as error:
        return str(error)
    return ""
