"""Runs of seconds, for tests of training."""

from typing import Any

from pcl.config.run_config import RunConfig
from pcl.tasks import Smoothing

# The truth is drawn at once and small networks train in milliseconds.
FAST: dict[str, Any] = {"task.largest_cosine": 0.9, "task.dim": 4, "task.dim_x": 3, "encoder.dim": 4}


def smoke(profile: str = "paper", loss: str = "mc_info_nce", **values: Any) -> RunConfig:
    paths = {name.replace("__", "."): value for name, value in values.items()}
    shrunk = {"training.n_negatives": 4} if profile == "exact" else {}
    base = RunConfig.of({"task.smoothing": Smoothing.NONE, **FAST, **shrunk}, scale="smoke", profile=profile, loss=loss)
    return base.with_values(paths)


def smoke_images(profile: str = "paper", loss: str = "mc_info_nce", **values: Any) -> RunConfig:
    """Return the configuration of a short training on the embedded images, with paths' dots as `__`."""
    paths = {name.replace("__", "."): value for name, value in values.items()}
    return RunConfig.of({"task.data": "embedded", **paths}, task="images", scale="smoke", profile=profile, loss=loss)
