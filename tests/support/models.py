"""Studies whose winners become models, and the images that are sent to them."""

import base64
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import pcl
from tests.support.services import SHORT

TOY = pcl.SearchSpace(
    "toys", "mc_info_nce", (pcl.Stage("grid", {"loss.n_samples": (2, 4)}),), SHORT, tuning_seeds=(1, 2),
    report_seeds=(4, 5),
)  # fmt: skip
SHAPES = pcl.SearchSpace(
    "shapes", "mc_info_nce", (pcl.Stage("grid", {"encoder.dim": (3,)}),), {"encoder.width": 2},
    pcl.Objective("val/crop_rank_corr"), tuning_seeds=(1,), report_seeds=(4, 5), task="images",
)  # fmt: skip
EMBEDDED = {"task.data": "embedded", "encoder.weights": ""}
_RANDOM = np.random.default_rng(7)
PICTURES = [_RANDOM.integers(0, 256, (side, 40, 3)).astype(np.uint8) for side in (32, 57)]


def searched(space: pcl.SearchSpace, storage: Path, name: str, **how: Any) -> pcl.Study:
    """A study at the scale smoke in this process."""
    settings = EMBEDDED if space.task == "images" else {}
    how = {"scale": "smoke", "seeds": space.tuning_seeds, "say": lambda _: None, **how}
    return pcl.search(space, settings=settings, storage=storage, name=name, **how)


def loaded(place: str | Path) -> Any:
    """A model as `mlflow.pyfunc.load_model` returns it."""
    with warnings.catch_warnings(action="ignore"):  # MLflow's, about its own parts
        import mlflow.pyfunc  # noqa: PLC0415  which warns

        return mlflow.pyfunc.load_model(str(place))


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def text(content: bytes) -> str:
    """Bytes as JSON has them."""
    return base64.b64encode(content).decode()
