"""The content of a registered model: code that travels with it, pinned requirements, and a digest of all of it."""

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torch import Tensor

from pcl.config.user_files import portable
from pcl.prediction.packed_encoder import PackedEncoder
from pcl.storage.installation import PACKAGE

LOADER = "pcl.studies.serving.loader"
# Folders of the package that prediction imports; a test loads a model with nothing else there.
_ROOMS = (
    "config", "data", "distributions", "encoders", "losses", "mathematics", "metrics", "prediction", "storage", "tasks",
    "studies/serving",
)  # fmt: skip
_LIBRARIES = ("mlflow", "torch", "numpy", "scipy", "pandas", "filelock")
_OF_IMAGES = ("pillow",)


def requirements_of(model: PackedEncoder) -> list[str]:
    """Return the requirements of prediction, each with the version that is installed here."""
    names = (*_LIBRARIES, *(_OF_IMAGES if model.takes_images else ()))
    return [f"{name}=={version(name).partition('+')[0]}" for name in names]  # a build such as +cpu is the user's choice


def copy_code(folder: Path) -> Path:
    """Copy the part of the package that prediction needs; return the copy."""
    for file in _code():
        copy = folder / PACKAGE.name / file.relative_to(PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)
    return folder / PACKAGE.name


def digest_of(model: PackedEncoder, requirements: Sequence[str], data: str) -> str:
    """Return sixteen hexadecimal digits of weights, configuration, reference set, code and requirements.

    `data` is the fingerprint of the reference set's images. Their embeddings follow from it and are left out: other
    processors give other last bits.
    """
    settings = portable(model.config.flat())
    head = {"config": settings, "seed": model.seed, "requirements": list(requirements)}
    digest = hashlib.sha256(json.dumps(head, sort_keys=True).encode())
    for name, tensor in sorted(model.weights.items()):
        _feed(digest.update, name, tensor)
    if (known := model.reference) is not None:
        digest.update(json.dumps([known.classes, data]).encode())
        _feed(digest.update, "labels", known.labels)
    for file in _code():
        digest.update(file.relative_to(PACKAGE).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _feed(update: Callable[[Any], None], name: str, tensor: Tensor) -> None:
    update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
    update(tensor.detach().cpu().contiguous().numpy())


def _code() -> list[Path]:
    packages = [PACKAGE / "__init__.py", PACKAGE / "studies" / "__init__.py"]
    return [*packages, *sorted(file for room in _ROOMS for file in (PACKAGE / room).rglob("*.py"))]
