"""Benchmark of training on images: a batch with many negatives and with none, its parts, an evaluation, a fold.

If the fast path has a step of its own, which encodes each different negative once or has kernels, the plain step is
timed too.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from launch.benchmarks import Row, measurement
from launch.benchmarks.measurement import peak, phase_row, synchronize
from launch.shared.command import say
from launch.shared.image_choice import chosen_data, named
from pcl.config.run_config import RunConfig
from pcl.losses import Negatives
from pcl.training.run import Run
from pcl.training.steps.training_step import TrainingStep

_SIZES = {
    "batch": "training.batch_size", "K": "loss.n_samples", "D": "encoder.dim", "M": "training.n_negatives",
    "width": "encoder.width",
}  # fmt: skip


def measure(
    *, data: str | None, profile: str, scale: str | None, device: str | None, batches: int | None,
    timed: tuple[int, int],
) -> list[Row]:  # fmt: skip
    """Measure and print the table row by row."""
    device, scale, n_timed = measurement.sizes(device, scale, batches, timed)
    images = chosen_data(data)
    values = {"task.data": named(data, images), "training.phases": "mu kappa"}
    base = RunConfig.of(values, profile=profile, scale=scale, task="images")
    flat = base.flat()
    sizes = {name: flat[path] for name, path in _SIZES.items()}
    say(f"MCInfoNCE on {images.name}, profile {profile}, {sizes}, {device}, {n_timed} batches a row")
    say(f"{'precision':<10}{'path':>6}{'what':>22}{'ms':>10}{'peak MiB':>10}{'first batches s':>17}")
    rows: list[Row] = []
    paths = ((True, "bfloat16"), (True, "float32"), (False, "bfloat16")) if device == "cuda" else ((False, "float32"),)
    for is_fast, precision in paths:
        rows += _rows(base.with_values({"encoder.precision": precision}), device, is_fast, n_timed)
    _tell_fold(rows[: len(rows) // len(paths)], base)
    return rows


def _rows(config: Any, device: str, is_fast: bool, n_timed: int) -> list[Row]:
    run = Run(config, (0,), device, is_fast=is_fast)
    path = "graph" if is_fast and device == "cuda" else "plain"
    head = {"precision": config.encoder.precision.value, "path": path, "config": config.flat()}
    rows = []
    for index, phase in enumerate(config.training.phases):
        is_one = config.training.negatives_at(index) is Negatives.IN_BATCH
        what = f"{phase.trained.value} phase, M = {0 if is_one else config.training.n_negatives}"
        rows.append({**head, "what": what, **phase_row(run, index, n_timed)})
        _tell(rows[-1])
    for what, part in _parts(run).items():
        rows.append({**head, "what": what, "ms_per_batch": _milliseconds(part, device), "peak_mib": None})
        _tell(rows[-1])
    if type(run.step) is not TrainingStep:
        rows.append({**head, "what": "plain step", **_twin(run, n_timed)})
        _tell(rows[-1])
    return rows


def _twin(run: Run, n_timed: int) -> Row:
    """Time the last phase of the same run with the plain step, repeated in the same way."""
    plain = Run(run.config, run.seeds, run.device, is_fast=False)
    plain.stepper = type(run.stepper)(plain.step)
    row = phase_row(plain, len(run.config.training.phases) - 1, n_timed)
    del row["phase"]  # not part of a fold's time
    return row


def _parts(run: Run) -> dict[str, Callable[[], object]]:
    """Return the parts of the last phase's batch, to be timed one by one outside of a graph, and an evaluation."""
    step = run.step
    prepared = step.prepare()

    def encode_and_back() -> None:
        posterior = step.encode(*prepared)
        (posterior.mu.sum() + posterior.kappa.sum()).backward()

    def evaluate() -> None:
        with torch.no_grad():
            step.task.evaluate(step.encoder)

    encode = partial(step.encode, *prepared)
    return {"pairs": step.prepare, "encoder": encode, "encoder and back": encode_and_back, "evaluation": evaluate}


def _milliseconds(part: Callable[[], object], device: str) -> float:
    """Return the milliseconds of one call: the fastest of five, after a warm-up."""
    part()
    times = []
    for _ in range(5):
        synchronize(device)
        started = time.perf_counter()
        part()
        synchronize(device)
        times.append(1e3 * (time.perf_counter() - started))
    return min(times)


def _tell(row: Row) -> None:
    first = f"{row['first_batches_s']:.1f}" if "first_batches_s" in row else ""
    head = f"{row['precision']:<10}{row['path']:>6}{row['what']:>22}"
    say(f"{head}{row['ms_per_batch']:>10.2f}{peak(row):>10}{first:>17}")


def _tell_fold(rows: list[Row], config: Any) -> None:
    """Print how long a fold takes with the first of the timed paths, half of it in each phase."""
    training = config.training
    batches = training.n_batches / 2 * sum(row["ms_per_batch"] for row in rows if "phase" in row) / 1e3
    evaluation = next(row["ms_per_batch"] for row in rows if row["what"] == "evaluation")
    evaluations = training.n_batches / training.eval_every * evaluation / 1e3
    say(
        f"a fold of {training.n_batches:,} batches with an evaluation every {training.eval_every}: {batches:.0f} s of "
        f"training and {evaluations:.0f} s of evaluations"
    )
