"""A Ray without the processes that only people and jobs need, each of which takes seconds to import.

These are dashboard, log monitor and autoscaler; the agent loads what the raylet cannot do without.
"""

from typing import Any

from ray._private import utils
from ray._private.node import Node


def make_lean() -> None:
    """Let nodes that this process starts do without them."""
    head = Node.start_head_processes

    def start_head_processes(node: Any) -> None:
        node._ray_params.no_monitor = True
        head(node)

    def nothing(*_: object, **__: object) -> None:
        pass

    Node.start_head_processes = start_head_processes  # type: ignore[method-assign]
    Node.start_api_server = nothing  # type: ignore[method-assign]
    Node.start_log_monitor = nothing  # type: ignore[method-assign]
    utils.get_dashboard_dependency_error = lambda: ImportError("not asked for")
