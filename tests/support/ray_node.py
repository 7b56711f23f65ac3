"""`ray start` of a node whose workers `worker_shim.py` asks for, lean where nobody asks for its dashboard."""

import sys
from pathlib import Path

from ray._private import ray_constants
from ray.scripts.scripts import main

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.support.lean_ray import make_lean

    ray_constants.SETUP_WORKER_FILENAME = str(Path(__file__).with_name("worker_shim.py"))
    if "--include-dashboard=True" not in sys.argv:
        make_lean()
    main()
