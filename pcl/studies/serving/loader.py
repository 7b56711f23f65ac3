"""MLflow's loader of a packed encoder, called by `mlflow.pyfunc.load_model` and `mlflow models serve`.

Images come as a table with a column `image` of encoded files or `pixels` of (H, W, 3); numbers as an array (N, dim_x).
The answer is a table with a row for each input. An invalid input raises an error that a server answers with the status
400.
"""

import base64
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from mlflow.exceptions import MlflowException

from pcl.prediction.packed_encoder import PackedEncoder
from pcl.prediction.posteriors import Prediction

IMAGE, PIXELS = "image", "pixels"  # columns of the input
MU, KAPPA, ANGLE = "mu", "kappa", "credible_angle_95"  # columns of the answer
LABEL, DISTANCE, INSIDE = "neighbour_label", "neighbour_angle", "neighbour_inside_95"


class ServedEncoder:
    """A packed encoder as MLflow calls it."""

    def __init__(self, model: PackedEncoder) -> None:
        self.model = model

    def predict(self, data: Any) -> pd.DataFrame:
        """Return the answers to a table of images or an array of numbers.

        Raises:
            MlflowException: If an input cannot be used; the message says which and why.
        """
        try:
            if self.model.takes_images:
                return answers(self.model.predict_images(_images(data)))
            return answers(self.model.predict_numbers(_numbers(data)))
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from None


def answers(found: Prediction) -> pd.DataFrame:
    """Return predictions as a table; angles are in radians."""
    columns: dict[str, Any] = {
        MU: found.mu.double().tolist(), KAPPA: found.kappa.double().tolist(), ANGLE: found.credible_angle.tolist(),
    }  # fmt: skip
    if (near := found.neighbours) is not None:
        columns |= {LABEL: near.labels, DISTANCE: near.angle.tolist(), INSIDE: near.is_inside.tolist()}
    return pd.DataFrame(columns)


def _images(data: Any) -> list[object]:
    """Return the image of each row, from whichever column has it."""
    there = [name for name in (IMAGE, PIXELS) if isinstance(data, pd.DataFrame) and name in data]
    if not there:
        raise ValueError(f"Images must be given in a column `{IMAGE}` or `{PIXELS}`.")
    columns = [map(_file, data[name]) if name == IMAGE else data[name] for name in there]
    rows = zip(*columns, strict=True)
    return [next((value for value in row if not _is_missing(value)), None) for row in rows]


def _file(value: object) -> object:
    """Return the decoded file of base64 text, as MLflow leaves it in `instances` and `inputs`; all else as it is."""
    if isinstance(value, str | bytes):
        with suppress(ValueError):  # an image file has bytes that base64 lacks
            return base64.b64decode(value, validate=True)
    return value


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))  # as pandas fills gaps


def _numbers(data: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(data, dtype=np.float64))


def _load_pyfunc(path: str) -> ServedEncoder:
    """Load a model, for MLflow; on a GPU where there is one."""
    return ServedEncoder(PackedEncoder.load(Path(path), "cuda" if torch.cuda.is_available() else "cpu"))
