"""Pretrained backbones, one per file, whose name ends with sixteen digits of the content's hash."""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from pcl.data.caches import damage_told, sound
from pcl.data.sources import data_folder, keep_in_store
from pcl.storage.files import clear_leftovers, replacing
from pcl.storage.installation import command

_FORMAT = 2  # version of the file format
_FACTS = ("kind", "width", "data", "fingerprint", "accuracy", "epochs", "batch_size", "lr", "seed", "erased")
_NAME = re.compile(r"[\w.-]*-[0-9a-f]{16}\.pt")


@final
@dataclass(frozen=True, eq=False)
class Weights:
    """A backbone's weights and how they were trained."""

    kind: str  # kind of network, such as "resnet18_pooled"
    width: int  # channels of its first stage
    data: str  # name of the training images
    fingerprint: str  # fingerprint of these images
    accuracy: float  # share of the set's evaluation images that the classifier on top gets right
    epochs: int  # passes through the training images
    batch_size: int  # images per step
    lr: float  # highest learning rate
    seed: int  # seed of everything random
    erased: int  # side of the square that was erased in every image, in pixels
    state: dict[str, Tensor]  # the backbone's `state_dict()`, on the CPU
    head: dict[str, Tensor] = field(default_factory=dict)  # the classification layer's; empty where it is not known

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits, equal for two only if their facts and tensors are equal."""
        tensors = self.state | {f"head.{name}": tensor for name, tensor in self.head.items()}
        shapes = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in tensors.items()}
        hashed = hashlib.sha256(json.dumps([self.facts, shapes], sort_keys=True).encode())
        for name in sorted(tensors):
            hashed.update(tensors[name].contiguous().numpy().tobytes())
        return hashed.hexdigest()[:16]

    @property
    def facts(self) -> dict[str, Any]:
        """All but the tensors."""
        return {name: getattr(self, name) for name in _FACTS}

    @property
    def file_name(self) -> str:
        """Name of their file, which identifies the weights wherever the file lies."""
        return f"{self.kind}-w{self.width}-{self.data}-{self.digest}.pt"

    def __str__(self) -> str:
        return f"{self.file_name} ({self.epochs} epochs of {self.data}, accuracy {self.accuracy:.2%})"


def weights_folder() -> Path:
    """Return the folder of the weights."""
    return data_folder() / "weights"


def is_weights_name(text: str) -> bool:
    """Return whether a file has a name as `keep_weights` gives it; folders before the name are ignored."""
    return _NAME.fullmatch(text.rpartition("/")[2]) is not None


def weights_file(text: str) -> Path:
    """Return the file of a name in `weights_folder`, or of a path."""
    return Path(os.path.expanduser(text)) if "/" in text else weights_folder() / text


def keep_weights(weights: Weights, folder: Path) -> Path:
    """Write weights atomically under their name, in a folder that is created if needed; return the file."""
    path = folder / weights.file_name
    content = {
        "format": _FORMAT,
        "digest": weights.digest,
        "state": weights.state,
        "head": weights.head,
        **weights.facts,
    }
    clear_leftovers(folder)
    with replacing(path) as unfinished:
        torch.save(content, unfinished)
    keep_in_store(path)
    return path


def load_weights(path: Path) -> Weights:
    """Load weights that `keep_weights` wrote, and verify their hash.

    Raises:
        Damaged: If the file is truncated, changed or of another kind.
        ValueError: If there is no such file, or another version of this program wrote it.
        OSError: If it cannot be read.
    """
    if not path.is_file():
        raise ValueError(f"There are no weights at {path}; `{command('pretrain')}` trains some.")
    hint = f"take another file, or train anew with `{command('pretrain')}`"
    with damage_told(path, "has no weights of this program", hint):
        content = torch.load(path, weights_only=True, map_location="cpu")
        version, digest = content["format"], content["digest"]
        if version == _FORMAT:
            facts = {name: content[name] for name in _FACTS}
            weights = Weights(state=content["state"], head=content.get("head", {}), **facts)  # older files: no head
            if weights.digest != digest:
                raise ValueError(f"its content is {weights.digest}, and was {digest}")
    if version != _FORMAT:
        raise ValueError(f"{path} must be of format {_FORMAT}, but is of {version}; {hint}.")
    return weights


def plain_state(path: Path) -> dict[str, Tensor] | None:
    """Return the tensors of a file that holds nothing else, as `torch.save(network.state_dict(), path)` writes it."""
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
    except Exception:  # a damaged archive can raise anything
        return None
    is_plain = isinstance(content, dict) and content and all(isinstance(value, Tensor) for value in content.values())
    return {str(name): value for name, value in content.items()} if is_plain else None


def named_weights(text: str) -> Weights:
    """Load the weights of a name or path whose digits must match their content.

    Raises:
        ValueError: As `load_weights`, and if the digits do not match.
    """
    path = weights_file(text)
    weights = load_weights(path)
    if not path.name.endswith(f"-{weights.digest}.pt"):
        raise ValueError(f"{path} must be called {weights.file_name}, by its content; rename it, or see `--weights`.")
    return weights


def kept_weights(folder: Path, kind: str, width: int, fingerprint: str) -> Sequence[Weights]:
    """Return a folder's weights for a network and training images, the most accurate first; set damaged ones aside."""
    paths = [path for path in sorted(folder.glob(f"{kind}-w{width}-*.pt")) if is_weights_name(path.name)]
    found = [weights for path in paths if (weights := sound(load_weights, path)) is not None]
    fit = [weights for weights in found if weights.fingerprint == fingerprint]
    return sorted(fit, key=lambda weights: (-weights.accuracy, weights.file_name))


def is_kept(weights: Weights, folder: Path) -> bool:
    """Return whether a folder has these weights; a damaged file of that name is set aside."""
    path = folder / weights.file_name
    return path.is_file() and sound(load_weights, path) is not None
