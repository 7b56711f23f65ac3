"""Checkpoints of a `pcl.training.Run`: reading them safely, and writing them not too often."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pcl.config import RunConfig

if TYPE_CHECKING:
    from pcl.training import Run

FORMAT = 1
# Between two checkpoints there is at least this many times what one takes: large networks are evaluated often.
_SAVING_FACTOR = 20.0


class Saving:
    """Checkpoints that take a small share of the time: after the last batch, and not too soon after the one before.

    Args:
        run: What is saved.
        path: The file.
        on_saved: Called when it has been written, in the time that is reckoned with.
    """

    def __init__(self, run: "Run", path: Path, on_saved: Callable[[], None] = lambda: None) -> None:
        self.run, self.path, self._on_saved = run, path, on_saved
        self._last, self._cost = time.perf_counter(), 0.0

    def save(self) -> bool:
        """Write a checkpoint where one is due; returns whether it was."""
        started = time.perf_counter()
        is_early = started - self._last < _SAVING_FACTOR * self._cost
        if is_early and self.run.batch < self.run.config.training.n_batches:
            return False
        self.run.save(self.path)
        self._on_saved()
        self._last = time.perf_counter()
        self._cost = self._last - started
        return True


def check_same_config(path: Path, config: RunConfig, seeds: Sequence[int]) -> None:
    """Raise a ValueError that names the first difference unless a checkpoint is of this configuration and seeds."""
    content = read_checkpoint(path)
    if tuple(content["seeds"]) != tuple(seeds):
        theirs = content["seeds"]
        raise ValueError(f"The checkpoint {path} is of the seeds {theirs}, not {list(seeds)}; name another file.")
    theirs, ours = RunConfig.from_flat(content["config"]).flat(), config.flat()
    for key in ours:
        if theirs.get(key) != ours[key]:
            raise ValueError(
                f"The checkpoint {path} is of another configuration: {key} is {theirs.get(key)} there and {ours[key]} "
                f"here; name another file or change the setting."
            )


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What `Run.save` wrote, on the CPU; anything else is a ValueError."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"There is no checkpoint {path}.") from None
    except Exception:
        raise ValueError(f"{path} is not a readable checkpoint; it was left as it is.") from None
    # Files of images have a format too, but no configuration.
    if not isinstance(content, dict) or content.get("format") != FORMAT or "config" not in content:
        raise ValueError(f"{path} is not a checkpoint of format {FORMAT}; it was left as it is.")
    return content
