"""A pretrained backbone, and the one file it is kept in, whose name ends with sixteen digits of its content's hash."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, final

import torch
from torch import Tensor

from pcl.data.caches import damage_told, sound
from pcl.data.sources import data_folder, keep_in_store
from pcl.storage.files import clear_leftovers, replacing

_FORMAT = 2  # of the file
_FACTS = ("kind", "width", "data", "fingerprint", "accuracy", "epochs", "batch_size", "lr", "seed", "erased")
_NAME = re.compile(r"[\w.-]*-[0-9a-f]{16}\.pt")


@final
@dataclass(frozen=True, eq=False)
class Weights:
    """A backbone's weights, and how they came about.

    Attributes:
        kind: Of the network, such as "resnet18_pooled".
        width: Channels of its first stage.
        data: Name of the images that they were trained on.
        fingerprint: Of these images.
        accuracy: Share of the set's judged images that the classifier on top had right.
        epochs: Passes through the training images.
        batch_size: Images of a step.
        lr: Highest learning rate.
        seed: Of everything random.
        erased: Side of the square that was erased in every image, in pixels.
        state: What the backbone's `state_dict` returned, on the CPU.
    """

    kind: str
    width: int
    data: str
    fingerprint: str
    accuracy: float
    epochs: int
    batch_size: int
    lr: float
    seed: int
    erased: int
    state: dict[str, Tensor]

    @cached_property
    def digest(self) -> str:
        """Sixteen hexadecimal digits that two share only where facts and tensors are equal."""
        shapes = {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in self.state.items()}
        hashed = hashlib.sha256(json.dumps([self.facts, shapes], sort_keys=True).encode())
        for name in sorted(self.state):
            hashed.update(self.state[name].contiguous().numpy().tobytes())
        return hashed.hexdigest()[:16]

    @property
    def facts(self) -> dict[str, Any]:
        """All but the tensors."""
        return {name: getattr(self, name) for name in _FACTS}

    @property
    def file_name(self) -> str:
        """What their file is called; it says which weights these are, wherever it lies."""
        return f"{self.kind}-w{self.width}-{self.data}-{self.digest}.pt"

    def __str__(self) -> str:
        return f"{self.file_name} ({self.epochs} epochs of {self.data}, accuracy {self.accuracy:.2%})"


def weights_folder() -> Path:
    """Where they are kept."""
    return data_folder() / "weights"


def is_weights_name(text: str) -> bool:
    """Whether a file is called as `keep_weights` would call one; folders before the name are left out."""
    return _NAME.fullmatch(text.rpartition("/")[2]) is not None


def weights_file(text: str) -> Path:
    """The file of a name in `weights_folder`, or of a path."""
    return Path(text).expanduser() if "/" in text else weights_folder() / text


def keep_weights(weights: Weights, folder: Path) -> Path:
    """Write them under their name; the file is there whole or not at all.

    Args:
        weights: What to keep.
        folder: Where; it is made.
    """
    path = folder / weights.file_name
    content = {"format": _FORMAT, "digest": weights.digest, "state": weights.state, **weights.facts}
    clear_leftovers(folder)
    with replacing(path) as unfinished:
        torch.save(content, unfinished)
    keep_in_store(path)
    return path


def load_weights(path: Path) -> Weights:
    """What `keep_weights` wrote, compared with the hash within.

    Raises:
        Damaged: Where the file is cut, changed or of another kind.
        ValueError: Where there is no such file, or it is of another version of this program.
        OSError: Where it cannot be read.
    """
    if not path.is_file():
        raise ValueError(f"There are no weights {path}; `python launch/pretrain.py` trains some.")
    hint = "take another file, or train anew with `python launch/pretrain.py`"
    with damage_told(path, "has no weights of this program", hint):
        content = torch.load(path, weights_only=True, map_location="cpu")
        version, digest = content["format"], content["digest"]
        if version == _FORMAT:
            weights = Weights(state=content["state"], **{name: content[name] for name in _FACTS})
            if weights.digest != digest:
                raise ValueError(f"its content is {weights.digest}, and was {digest}")
    if version != _FORMAT:
        raise ValueError(f"{path} must be of format {_FORMAT}, but is of {version}; {hint}.")
    return weights


def plain_state(path: Path) -> dict[str, Tensor] | None:
    """The tensors of a file that has nothing else, as `torch.save(network.state_dict(), path)` leaves it."""
    try:
        content = torch.load(path, weights_only=True, map_location="cpu")
    except Exception:  # a damaged archive fails in as many ways as it has bytes
        return None
    is_plain = isinstance(content, dict) and content and all(isinstance(value, Tensor) for value in content.values())
    return {str(name): value for name, value in content.items()} if is_plain else None


def named_weights(text: str) -> Weights:
    """The weights of a name or path whose digits tell their content.

    Raises:
        ValueError: Also where the digits are of others.
    """
    path = weights_file(text)
    weights = load_weights(path)
    if not path.name.endswith(f"-{weights.digest}.pt"):
        raise ValueError(f"{path} must be called {weights.file_name}, by its content; rename it, or see `--weights`.")
    return weights


def kept_weights(folder: Path, kind: str, width: int, fingerprint: str) -> Sequence[Weights]:
    """Return the weights of a folder that fit a network and were trained on these images, the most accurate first.

    Damaged ones are set aside.
    """
    paths = [path for path in sorted(folder.glob(f"{kind}-w{width}-*.pt")) if is_weights_name(path.name)]
    found = [weights for path in paths if (weights := sound(load_weights, path)) is not None]
    fit = [weights for weights in found if weights.fingerprint == fingerprint]
    return sorted(fit, key=lambda weights: (-weights.accuracy, weights.file_name))


def is_kept(weights: Weights, folder: Path) -> bool:
    """Return whether a folder has these weights; a damaged file of their name is set aside."""
    path = folder / weights.file_name
    return path.is_file() and sound(load_weights, path) is not None
