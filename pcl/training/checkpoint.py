"""Checkpoints of a `pcl.training.run.Run`: verified when read, and not written too often."""

import hashlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from pcl.config.run_config import RunConfig
from pcl.storage.files import replacing

FORMAT = 2
_KEYS = {"config", "seeds", "batch", "phase", "seconds", "failures", "task", "best", "stepper"}
# The time between two checkpoints is at least this many times that of writing one: large networks are evaluated often.
_SAVING_FACTOR = 20.0


class Saveable(Protocol):
    """A training that writes checkpoints of itself."""

    batch: int

    @property
    def config(self) -> RunConfig: ...

    def save(self, path: Path) -> None: ...


class Saving:
    """A writer of checkpoints that takes a small share of the time: it writes after the last batch, and not too often.

    The one before is kept as `previous`, if given. `on_saved` is called after each write, and its time counts.
    """

    def __init__(
        self, run: Saveable, path: Path, previous: Path | None = None, on_saved: Callable[[], None] = lambda: None
    ) -> None:
        self.run, self.path, self._previous, self._on_saved = run, path, previous, on_saved
        self._last, self._cost = time.perf_counter(), 0.0

    def save(self) -> bool:
        """Write a checkpoint if one is due; return whether it was."""
        started = time.perf_counter()
        is_early = started - self._last < _SAVING_FACTOR * self._cost
        if is_early and self.run.batch < self.run.config.training.n_batches:
            return False
        if self._previous is not None and self.path.exists():
            with suppress(OSError), replacing(self._previous) as unfinished:  # some file systems have no hard links
                os.link(self.path, unfinished)
        self.run.save(self.path)
        self._on_saved()
        self._last = time.perf_counter()
        self._cost = self._last - started
        return True


def check_same_config(path: Path, content: Mapping[str, Any], config: RunConfig, seeds: Sequence[int]) -> None:
    """Raise a ValueError that names the first difference unless a checkpoint has this configuration and these seeds."""
    if tuple(content["seeds"]) != tuple(seeds):
        theirs = content["seeds"]
        raise ValueError(f"The checkpoint {path} has the seeds {theirs}, not {list(seeds)}; name another file.")
    theirs, ours = RunConfig.from_flat(content["config"]).flat(), config.flat()
    for key in {**ours, **theirs}:
        there, here = theirs.get(key, "the default"), ours.get(key, "the default")
        if there != here:
            raise ValueError(
                f"The checkpoint {path} has another configuration: {key} is {there} there and {here} here; name "
                "another file or change the setting."
            )


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Write a checkpoint with its digest, atomically."""
    content = {**content, "format": FORMAT}
    with replacing(path) as unfinished:
        torch.save({**content, "digest": _digest(content)}, unfinished)


def read_checkpoint(path: Path) -> dict[str, Any]:
    """Read what `write_checkpoint` wrote, to the CPU; raise a ValueError if it is anything else or incomplete."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"There is no checkpoint {path}.") from None
    except Exception:
        raise ValueError(f"{path} is not a readable checkpoint; it was left as it is.") from None
    # Files of images have a format too, but no configuration.
    if not isinstance(content, dict) or content.get("format") != FORMAT or not set(content) >= _KEYS:
        raise ValueError(f"{path} is not a checkpoint of format {FORMAT}; it was left as it is.")
    if content.pop("digest", "") != _digest(content):
        raise ValueError(f"{path} is damaged: its content does not match its digest; it was left as it is.")
    return content


def _digest(content: Any) -> str:
    digest = hashlib.sha256()
    _feed(digest.update, content)
    return digest.hexdigest()


def _feed(update: Callable[[Any], None], content: Any) -> None:
    """Hash the bytes of everything in a checkpoint, with types and sizes."""
    if isinstance(content, Tensor):
        flat = content.detach().cpu().contiguous().reshape(-1)
        update(f"{content.dtype}{tuple(content.shape)}".encode())
        update(flat.view(torch.uint8).numpy() if flat.numel() else b"")
    elif isinstance(content, Mapping):
        update(f"{{{len(content)}".encode())
        for key, value in content.items():
            update(repr(key).encode())
            _feed(update, value)
    elif isinstance(content, list | tuple):
        update(f"[{len(content)}".encode())
        for value in content:
            _feed(update, value)
    else:
        update(f"{type(content).__name__} {content!r}".encode())
