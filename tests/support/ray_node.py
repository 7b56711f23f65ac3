"""`ray start` of a node whose workers `worker_shim.py` asks for.

Where nobody looks at its dashboard, it has none of the processes that only people and jobs need, each of which imports
for seconds: dashboard, log monitor, autoscaler; and the agent loads what the raylet cannot do without.
"""

import sys
from pathlib import Path

from ray._private import ray_constants, utils
from ray._private.node import Node
from ray.scripts.scripts import main

if __name__ == "__main__":
    ray_constants.SETUP_WORKER_FILENAME = str(Path(__file__).with_name("worker_shim.py"))
    if "--include-dashboard=True" not in sys.argv:
        sys.argv.append("--include-log-monitor=False")
        if "--head" in sys.argv:
            sys.argv.append("--no-monitor")
        utils.get_dashboard_dependency_error = lambda: ImportError("not asked for")
        Node.start_api_server = lambda *_, **__: None  # type: ignore[method-assign]
    main()
