"""`bench.py predict`: images per second and peak memory of an image model, as MLflow calls it and without MLflow.

The network is the paper's ResNet-18 with random weights; trained weights are as fast.
"""

import io
import multiprocessing
import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from launch.benchmarks import Row
from launch.benchmarks.measurement import circumstances, peak_mib, synchronize
from launch.shared.command import chosen_device, say
from pcl.config.experiments import images_of
from pcl.config.run_config import RunConfig
from pcl.data.embedded import embedded
from pcl.prediction.packed_encoder import PackedEncoder
from pcl.prediction.posteriors import Reference
from pcl.training.trained_encoder import TrainedEncoder

_LARGE = 224  # rows and columns of a photograph's usual copy
_N_DIFFERENT = 100  # images; batches repeat them
_BATCHES = (1, 50, 500)  # in rising order: a process's peak memory never falls
_N_REFERENCES = 5_000  # embeddings that a model carries at most


def measure(*, device: str | None, side: int, width: int, seconds: int) -> list[Row]:
    """Measure and print the table row by row, each kind of input in a process of its own for its peak memory."""
    device = chosen_device(device)
    inputs = [("pyfunc", "PNG", 32), ("pyfunc", "PNG", _LARGE), ("pyfunc", "JPEG", _LARGE), ("pyfunc", "pixels", 32),
              ("TrainedEncoder", "tensor", side)]  # fmt: skip
    hardware = circumstances()["hardware"]
    where = hardware["gpu"] if device == "cuda" else f"{hardware['cores']} x {hardware['cpu']}"
    say(f"ResNet-18 of width {width} on {side} x {side} images, {_N_REFERENCES:,} references, {device}: {where}")
    memory = "of the GPU" if device == "cuda" else "resident"
    say(f"{'through':<16}{'input':>18}{'batch':>8}{'images/s':>11}{'a CPU-second':>14}{'peak MiB':>10} {memory}")
    rows: list[Row] = []
    if device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # for the other processes: MLflow uses a GPU if there is one
    # This process handles Ctrl-C; leaving the block ends the other.
    ignore_interrupt = (signal.SIGINT, signal.SIG_IGN)
    with multiprocessing.get_context("spawn").Pool(1, signal.signal, ignore_interrupt, maxtasksperchild=1) as pool:
        for kind in inputs:
            for row in pool.apply(measure_input, (*kind, side, width, seconds, device)):
                rows.append(row)
                what = f"{row['input']} {row['input_side']} x {row['input_side']}"
                speed = f"{row['images_per_s']:>11,.0f}{row['images_per_cpu_s']:>14,.0f}"
                say(f"{row['through']:<16}{what:>18}{row['batch']:>8}{speed}{row['peak_mib']:>10,.0f}")
    return rows


def measure_input(through: str, kind: str, input_side: int, side: int, width: int, seconds: int, device: str) -> Any:
    """Measure one kind of input in this process; return a row for each batch size."""
    model = untrained(side, width, device)
    files = list(_files(kind, input_side))
    rows = []
    with tempfile.TemporaryDirectory(prefix="pcl-bench-") as folder, warnings.catch_warnings(action="ignore"):
        predict: Callable[[Any], object] = _trained(model).encode
        if through == "pyfunc":
            predict = _pyfunc(model, kind, Path(folder))
        for batch in _BATCHES:
            images = [files[place % len(files)] for place in range(batch)]
            given = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2) if kind == "tensor" else images
            passed, spent = _seconds_a_call(partial(predict, given), seconds, device)
            rows.append({
                "through": through, "input": kind, "input_side": input_side, "side": side, "width": width,
                "device": device, "batch": batch, "images_per_s": batch / passed, "images_per_cpu_s": batch / spent,
                "peak_mib": peak_mib(device),
            })  # fmt: skip
    return rows


def untrained(side: int, width: int, device: str) -> PackedEncoder:
    """Return a model with random weights and the largest number of references."""
    values = {"task.data": "embedded", "task.side": side, "encoder.width": width, "encoder.weights": ""}
    config = RunConfig.of(values, task="images", scale="paper")
    encoder = config.encoder.build_for(config.task.inputs, (0,))
    generator = torch.Generator().manual_seed(0)
    mu = torch.nn.functional.normalize(torch.randn(_N_REFERENCES, config.encoder.dim, generator=generator), dim=-1)
    reference = Reference(mu, torch.arange(_N_REFERENCES) % 10, tuple(map(str, range(10))))
    return PackedEncoder(config, 0, encoder.run_state(0), reference, torch.device(device))


def _files(kind: str, side: int) -> Iterator[Any]:
    """Yield embedded images, resized, as files or as pixels (H, W, 3)."""
    for pixels in embedded(n=_N_DIFFERENT, n_train=10).images.images.permute(0, 2, 3, 1).numpy():
        image = Image.fromarray(pixels).resize((side, side), Image.Resampling.BICUBIC)
        if kind in ("PNG", "JPEG"):
            file = io.BytesIO()
            image.save(file, kind)
            yield file.getvalue()
        else:
            yield np.asarray(image)


def _pyfunc(model: PackedEncoder, kind: str, folder: Path) -> Callable[[list[Any]], object]:
    """Return the prediction function of a model that MLflow has saved and loaded."""
    import mlflow.pyfunc  # noqa: PLC0415  it warns
    import pandas as pd  # noqa: PLC0415  with MLflow

    from pcl.studies.registry.model_files import signature_of  # noqa: PLC0415  with MLflow
    from pcl.studies.registry.package import LOADER  # noqa: PLC0415  with MLflow
    from pcl.studies.serving.loader import IMAGE, PIXELS  # noqa: PLC0415  imports MLflow

    model.save(folder / "encoder")
    mlflow.pyfunc.save_model(
        str(folder / "model"), loader_module=LOADER, data_path=str(folder / "encoder"), signature=signature_of(model),
        pip_requirements=[],
    )  # fmt: skip
    loaded = mlflow.pyfunc.load_model(str(folder / "model"))
    column = PIXELS if kind == "pixels" else IMAGE
    return lambda images: loaded.predict(pd.DataFrame({column: images}))


def _trained(model: PackedEncoder) -> TrainedEncoder:
    task = images_of(model.config.task, "the benchmark's task")
    return TrainedEncoder(model.config, task, model.seed, model.encoder, model.device, 0, {})


def _seconds_a_call(call: Callable[[], object], seconds: int, device: str) -> tuple[float, float]:
    """Return wall time and processor time per call: means over at least three calls, after a warm-up."""
    call()
    synchronize(device)
    started, spent, n_calls = time.perf_counter(), time.process_time(), 0
    while n_calls < 3 or time.perf_counter() - started < seconds:
        call()
        n_calls += 1
    synchronize(device)
    return (time.perf_counter() - started) / n_calls, (time.process_time() - spent) / n_calls
