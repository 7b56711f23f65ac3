"""`ray start` of a node whose workers `worker_shim.py` asks for."""

from ray.scripts.scripts import main
from worker_shim import put_in_place  # type: ignore[import-not-found]  nodes do not see this checkout

if __name__ == "__main__":
    put_in_place()
    main()
