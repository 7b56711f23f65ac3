"""Throughput of a process that trains several trials side by side, compared with one alone."""

from launch.benchmarks import Row, measurement
from launch.shared.command import say
from launch.shared.image_choice import chosen_data, named
from pcl.config.run_config import RunConfig
from pcl.studies.report.plan import side_by_side_seconds
from pcl.studies.space.ablation import SEEDS
from pcl.training.run import Run

_TRIALS = (1, 2, 3, 4)
_REPEATS = 2  # the faster counts


def measure(
    *, task: str, data: str | None, profile: str, scale: str | None, device: str | None, batches: int | None,
    timed: tuple[int, int],
) -> list[Row]:  # fmt: skip
    """Measure and print the table row by row."""
    device, scale, n_batches = measurement.sizes(device, scale, batches, timed)
    if device != "cuda":
        raise ValueError("`bench.py sharing` needs a GPU: on a CPU, trials in one process only take turns.")
    say(f"MCInfoNCE, task {task}, profile {profile}, scale {scale}, {device}, {n_batches} batches of each phase")
    say(f"{'a trial':>13}{'trials':>8}{'ms/batch of all':>17}{'done, of one alone':>20}")
    rows: list[Row] = []
    for what, (config, seeds) in _trials(task, data, profile, scale).items():
        runs: list[Run] = []
        alone = 0.0
        for n_trials in _TRIALS:
            runs += [Run(config, seeds, device) for _ in range(n_trials - len(runs))]
            seconds = min(side_by_side_seconds(runs, device, n_batches) for _ in range(_REPEATS))
            alone = alone or seconds
            ms, gain = 1e3 * seconds / (n_batches * len(config.training.phases)), n_trials * alone / seconds
            rows.append({"what": what, "trials": n_trials, "ms_per_batch": ms, "gain": gain})
            say(f"{what:>13}{n_trials:>8}{ms:>17.3f}{gain:>20.2f}")
    return rows


def _trials(task: str, data: str | None, profile: str, scale: str) -> dict[str, tuple[RunConfig, tuple[int, ...]]]:
    """Return the timed configurations and their seeds by name. Nothing is evaluated."""
    if task == "toy":
        config = RunConfig.of({"task.n_eval": 100}, profile=profile, scale=scale)
        return {f"{n} seeds": (config, SEEDS[:n]) for n in (1, 3, 5)}
    images = {"task.data": named(data, chosen_data(data)), "training.phases": "joint", "training.eval_every": 10**6}
    cells: dict[str, dict[str, object]] = {
        "M = 0": {"training.negatives": "in_batch"}, "M = 1": {"training.n_negatives": 1}, "M = 32": {},
    }  # fmt: skip
    return {
        name: (RunConfig.of({**images, **values}, profile=profile, scale=scale, task="images"), (0,))
        for name, values in cells.items()
    }
