"""Cost of a batch of the controlled experiment, fast path and plain twin: more seeds, doubled sizes, HIB and ELK."""

from itertools import product

from launch.benchmarks import Row, measurement
from launch.benchmarks.measurement import peak, phase_row
from launch.shared.command import say
from pcl.config.run_config import RunConfig
from pcl.losses.base import SampledContrast
from pcl.studies.space.ablation import SEEDS
from pcl.training.run import Run

_OTHERS: dict[str, dict[str, object]] = {  # the paper's other losses, at their published winners
    "hib": {"training.negatives": "in_batch", "training.phases": "joint"},
    "elk": {"training.n_negatives": 1, "training.phases": "joint"},
}
_DOUBLED = {
    "K": ("loss.n_samples",), "M": ("training.n_negatives",), "B": ("training.batch_size",),
    "D": ("task.dim", "task.dim_x", "encoder.dim"),
}  # fmt: skip


def measure(
    *, profile: str, scale: str | None, device: str | None, batches: int | None, timed: tuple[int, int]
) -> list[Row]:  # fmt: skip
    """Measure and print the table row by row."""
    device, scale, n_batches = measurement.sizes(device, scale, batches, timed)
    # Evaluations are not timed here, so their inputs can be few.
    base = RunConfig.of({"task.n_eval": 100}, profile=profile, scale=scale)
    flat = base.flat()
    sizes = {name: flat[paths[0]] for name, paths in _DOUBLED.items()}
    say(f"MCInfoNCE, profile {profile}, {sizes}, {device}, {n_batches} batches a row")
    say(f"{'variant':<10}{'seeds':>6}{'phase':>7}{'path':>7}{'ms/batch':>10}{'peak MiB':>10}{'first batches s':>17}")
    rows: list[Row] = []
    for n_seeds in (1, len(SEEDS)):
        for is_fast in _paths(base, device):
            rows += _rows("base", base, SEEDS[:n_seeds], device, is_fast, n_batches)
    for name, doubled in _DOUBLED.items():
        larger = base.with_values({path: 2 * int(flat[path]) for path in doubled})
        rows += _rows(f"2 x {name}", larger, SEEDS[:1], device, _paths(larger, device)[0], n_batches)
    for loss, winner in _OTHERS.items():
        config = RunConfig.of({"task.n_eval": 100, **winner}, loss=loss, profile=profile, scale=scale)
        for n_seeds, is_fast in product((1, len(SEEDS)), _paths(config, device)):
            rows += _rows(loss, config, SEEDS[:n_seeds], device, is_fast, n_batches)
    return rows


def _paths(config: RunConfig, device: str) -> tuple[bool, ...]:
    """Return the paths to time, fast (True) and plain (False): on a CPU, only losses with tables have a fast path."""
    contrast = config.loss.fused
    has_tables = isinstance(contrast, SampledContrast) and contrast.is_integrated
    return (True, False) if device == "cuda" or has_tables else (False,)


def _rows(
    variant: str, config: RunConfig, seeds: tuple[int, ...], device: str, is_fast: bool, n_batches: int
) -> list[Row]:
    run = Run(config, seeds, device, is_fast=is_fast)
    # The plain twin is timed on fewer batches: it only serves as a comparison.
    n_timed = n_batches if is_fast or len(_paths(config, device)) == 1 else max(10, n_batches // 20)
    rows = []
    for index in range(len(config.training.phases)):
        path = "fast" if is_fast else "plain"
        head = {"variant": variant, "seeds": len(seeds), "path": path, "config": config.flat()}
        row: Row = {**head, **phase_row(run, index, n_timed)}
        rows.append(row)
        told = f"{variant:<10}{row['seeds']:>6}{row['phase']:>7}{row['path']:>7}"
        say(f"{told}{row['ms_per_batch']:>10.3f}{peak(row):>10}{row['first_batches_s']:>17.1f}")
    return rows
