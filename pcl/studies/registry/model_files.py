"""The files of an MLflow model: signature, example, metadata, code, weights and a torch.export program."""

import io
import math
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pcl.prediction.packed_encoder import PackedEncoder
from pcl.prediction.pictures import FORMATS
from pcl.storage.files import first_line
from pcl.studies.registry.champion import Champion
from pcl.studies.registry.export import PROGRAM, export
from pcl.studies.registry.package import LOADER, copy_code

FOLDER = "encoder"  # in a model's folder data/

if TYPE_CHECKING:
    import pandas as pd
    from mlflow.entities import LoggedModel
    from mlflow.models import ModelSignature


def signature_of(model: PackedEncoder) -> "ModelSignature":
    """Return the columns or the array that a model takes, and the columns that it returns."""
    from mlflow.models import ModelSignature  # noqa: PLC0415  MLflow takes seconds
    from mlflow.types import ColSpec, DataType, Schema, TensorSpec  # noqa: PLC0415  MLflow takes seconds
    from mlflow.types.schema import AnyType, Array  # noqa: PLC0415  MLflow takes seconds

    from pcl.studies.serving import loader as columns  # noqa: PLC0415  which imports MLflow

    inputs: list[ColSpec | TensorSpec] = [TensorSpec(np.dtype(np.float64), (-1, *model.input_shape))]
    if model.takes_images:
        anything = AnyType()  # type: ignore[no-untyped-call]
        inputs = [
            ColSpec(DataType.binary, columns.IMAGE, required=False), ColSpec(anything, columns.PIXELS, required=False),
        ]  # fmt: skip
    number = DataType.double
    outputs: list[ColSpec | TensorSpec]
    outputs = [ColSpec(Array(number), columns.MU), ColSpec(number, columns.KAPPA), ColSpec(number, columns.ANGLE)]
    if model.reference is not None:
        outputs += [
            ColSpec(DataType.string, columns.LABEL), ColSpec(number, columns.DISTANCE),
            ColSpec(DataType.boolean, columns.INSIDE),
        ]  # fmt: skip
    return ModelSignature(Schema(inputs), Schema(outputs))


def input_example(model: PackedEncoder) -> "pd.DataFrame | np.ndarray[Any, Any]":
    """Return two inputs: shades from black to white as PNG files, or points."""
    import pandas as pd  # noqa: PLC0415  a part of a second
    from PIL import Image  # noqa: PLC0415  not for models of numbers

    from pcl.studies.serving.loader import IMAGE  # noqa: PLC0415  which imports MLflow

    if not model.takes_images:
        return np.linspace(-1, 1, 2 * math.prod(model.input_shape)).reshape(2, *model.input_shape)
    shades = np.linspace(0, 255, 48, dtype=np.uint8)
    files = []
    for rising in (shades, shades[::-1]):
        file = io.BytesIO()
        Image.fromarray(np.broadcast_to(rising[:, None], (48, 48, 3)).copy()).save(file, "PNG")
        files.append(file.getvalue())
    return pd.DataFrame({IMAGE: files})


def metadata_of(champion: Champion, model: PackedEncoder) -> dict[str, Any]:
    """Return the origin that a model's file MLmodel records: the whole configuration, metrics with intervals, data."""
    side = model.input_shape[-1]
    inputs = f"(N, {side}) numbers"
    if model.takes_images:
        inputs = (
            f"image: a {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file; or pixels: uint8 (H, W, 3); of any size: the "
            f"centred square is resized to {side} x {side}, as in training"
        )
    metrics = {
        name: {key: value if math.isfinite(value) else None for key, value in asdict(found).items()}
        for name, found in champion.metrics.items()
    }
    return {
        "study": champion.study, "trial": champion.key, "seed": model.seed, "config": model.config.flat(),
        "metrics": metrics, "seeds": list(champion.taken.trial.seeds), "is_report": champion.is_reported,
        "data": champion.taken.trial.data, "numerics": champion.numerics, "inputs": inputs, "angles": "radians",
    }  # fmt: skip


def save_files(
    path: Path, model: PackedEncoder, requirements: Sequence[str], metadata: Mapping[str, Any], logged: "LoggedModel"
) -> tuple[str, ...]:
    """Write an MLflow model to a new folder; return sentences on what it lacks."""
    notes: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory() as made, warnings.catch_warnings(action="ignore"):  # MLflow's, about its own
        import mlflow.pyfunc  # noqa: PLC0415  takes seconds
        from mlflow.models import Model  # noqa: PLC0415  MLflow takes seconds

        data = Path(made) / FOLDER
        model.save(data)
        try:
            export(model, data / PROGRAM)
        except Exception as error:  # torch raises many kinds for what it cannot trace
            notes = (f"no {PROGRAM}: torch.export does not take the network ({first_line(error)})",)
        entry = Model(
            logged.artifact_location, logged.source_run_id, model_uuid=logged.model_id, model_id=logged.model_id,
            metadata=dict(metadata),
        )  # fmt: skip
        mlflow.pyfunc.save_model(
            str(path), loader_module=LOADER, data_path=str(data), code_paths=[str(copy_code(Path(made)))],
            mlflow_model=entry, signature=signature_of(model), input_example=input_example(model),
            pip_requirements=list(requirements),
        )  # fmt: skip
    return notes
