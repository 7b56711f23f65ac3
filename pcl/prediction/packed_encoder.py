"""One trained encoder as a self-contained folder: weights, configuration, users' files and a reference set.

FOLDER/encoder.pt       weights of one seed, the whole configuration, mu and labels of the reference set
FOLDER/user_files/      copies of the user's own files that the configuration names, each once
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pcl.config.run_config import RunConfig
from pcl.config.user_files import KEYS, named
from pcl.config.user_files import Reference as UserReference
from pcl.data.caches import damage_told
from pcl.distributions import VonMisesFisher
from pcl.encoders import Encoder
from pcl.prediction.pictures import pictures
from pcl.prediction.posteriors import Prediction, Reference, prediction_of

_FILE, _USER_FILES, _FORMAT = "encoder.pt", "user_files", 1
_BLOCK = 500  # inputs encoded at once


@dataclass(frozen=True, eq=False)
class PackedEncoder:
    """A trained encoder of one seed with everything that prediction needs."""

    config: RunConfig
    seed: int
    weights: Mapping[str, Tensor]  # one run's part of the encoder's state
    reference: Reference | None = None
    device: torch.device = torch.device("cpu")  # noqa: RUF009  immutable

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Return the shape of one input as the network takes it: (dim_x,), or (3, side, side) of images."""
        return self.config.task.inputs.shape

    @property
    def takes_images(self) -> bool:
        return len(self.input_shape) == 3

    @cached_property
    def encoder(self) -> Encoder:
        """Build the network, for evaluation.

        Raises:
            ValueError: If the weights are not of this configuration.
        """
        encoder = self.config.encoder.without_weights().build_for(self.config.task.inputs, (self.seed,))
        try:
            encoder.load_run_state(0, dict(self.weights))
        except (RuntimeError, KeyError):  # torch's message is a page of names
            raise ValueError("The model's weights do not fit its configuration.") from None
        return encoder.eval().requires_grad_(False).to(self.device)

    @torch.no_grad()
    def encode(self, x: Tensor) -> VonMisesFisher:
        """Return the posteriors of inputs (N, *input_shape), N >= 1, on the CPU; images are numbers from 0 to 255."""
        parts = [self.encoder(part.to(self.device).unsqueeze(0)) for part in x.split(_BLOCK)]
        mu, kappa = (torch.cat([getattr(p, name)[0].cpu() for p in parts]) for name in ("mu", "kappa"))
        return VonMisesFisher(mu, kappa, validate_args=False)

    def predict_images(self, images: Sequence[object]) -> Prediction:
        """Predict images, each encoded bytes or pixels (H, W, 3) of any size.

        Raises:
            ValueError: If the encoder takes no images, or an input is not an image.
        """
        if not self.takes_images:
            raise ValueError(f"The model takes numbers (N, {self.input_shape[0]}), not images.")
        made = [
            self.encode(pictures(images[start : start + _BLOCK], self.input_shape[-1], start))
            for start in range(0, max(1, len(images)), _BLOCK)
        ]
        mu, kappa = (torch.cat([getattr(posterior, name) for posterior in made]) for name in ("mu", "kappa"))
        return prediction_of(VonMisesFisher(mu, kappa, validate_args=False), self.reference)

    def predict_numbers(self, x: Tensor) -> Prediction:
        """Predict inputs (N, dim_x).

        Raises:
            ValueError: If they have another shape, or are not finite.
        """
        shape = ", ".join(("N", *map(str, self.input_shape)))
        if x.ndim != 1 + len(self.input_shape) or x.shape[1:] != self.input_shape or not len(x):
            raise ValueError(f"Inputs must be of shape ({shape}), N >= 1, but got {tuple(x.shape)}.")
        if not x.isfinite().all():
            raise ValueError("Inputs must be finite numbers, but got NaN or infinity.")
        return prediction_of(self.encode(x.to(torch.float32)), self.reference)

    def save(self, folder: Path) -> None:
        """Write the folder, which is created."""
        folder.mkdir(parents=True, exist_ok=True)
        known = None
        if self.reference is not None:
            known = {"mu": self.reference.mu, "labels": self.reference.labels, "classes": list(self.reference.classes)}
        content = {
            "format": _FORMAT, "config": self.config.flat(), "seed": self.seed, "weights": dict(self.weights),
            "reference": known,
        }  # fmt: skip
        torch.save(content, folder / _FILE)
        for digest, file in user_files(self.config).items():
            (folder / _USER_FILES).mkdir(exist_ok=True)
            shutil.copyfile(file, folder / _USER_FILES / f"{digest}.py")

    @classmethod
    def load(cls, folder: Path, device: str | torch.device = "cpu") -> "PackedEncoder":
        """Read what `save` wrote, and run the users' files in it: loading a model means trusting its code.

        Raises:
            Damaged: If it cannot be read.
            ValueError: If its configuration cannot be built here.
        """
        path = folder / _FILE
        with damage_told(path, "not a packed encoder", "fetch the model again"):
            content: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            if content["format"] != _FORMAT:
                raise ValueError(f"format {_FORMAT} was expected, not {content['format']}")
            flat, known = content["config"], content["reference"]
            reference = known and Reference(known["mu"], known["labels"], tuple(known["classes"]))
        for key in KEYS:
            if (reference_of := UserReference.of(str(flat.get(key, "")))) is not None:
                named(f"{folder / _USER_FILES / reference_of.digest}.py:{reference_of.name}")
        config = RunConfig.from_flat(flat)
        return cls(config, content["seed"], content["weights"], reference, torch.device(device))


def user_files(config: RunConfig) -> dict[str, Path]:
    """Return the users' files that a configuration names, by the digests of their content."""
    found = (UserReference.of(str(config.flat().get(key, ""))) for key in KEYS)
    return {reference.digest: Path(reference.file) for reference in found if reference is not None}
