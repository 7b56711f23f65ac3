"""`ray start` of a node whose workers `worker_shim.py` asks for."""

from pathlib import Path

from ray._private import ray_constants
from ray.scripts.scripts import main

if __name__ == "__main__":
    ray_constants.SETUP_WORKER_FILENAME = str(Path(__file__).with_name("worker_shim.py"))
    main()
