"""A study's plan and estimated time, before it runs."""

import contextlib
import gc
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy  # noqa: F401  `survive_forks` limits the threads of what is loaded
import torch

from pcl.config.run_config import RunConfig
from pcl.config.user_files import trust
from pcl.mathematics.threads import using_threads
from pcl.presentation.durations import duration
from pcl.studies.execution.resources import Cost, Resources, with_side_by_side
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.results.pareto import with_objectives
from pcl.studies.results.replication import RULE
from pcl.studies.search.stages import N_REPORTED
from pcl.studies.space.axes import Domain, Variants
from pcl.studies.space.search_method import GRID, Method
from pcl.studies.space.search_space import SearchSpace
from pcl.studies.space.trial import Trial
from pcl.training.interleaving import interleaved
from pcl.training.run import Run

_OVERHEAD_S = 0.25  # of a trial outside of training; `bench.py study` measures it
_SLICE = 50  # batches that a probe gives the device at once
_BATCHES, _BESIDE_S = 200, 3.0  # most batches of a phase timed side by side, and about how long
_LONG_S = 5.0  # batches are timed again until this long
_LEAST_RANGE = 1.5  # least ratio of longest to shortest estimate: trials side by side share caches and memory
_ENOUGH_S = 30.0  # after this long, no further trial is probed


def probe(
    config: RunConfig, seeds: Sequence[int], device: str, is_grouped: bool = False, n_batches: int = 5
) -> Cost:  # fmt: skip
    """Measure a few batches of every phase and one evaluation, and estimate the cost of the whole trial.

    With `is_grouped`, also measure how many of them a process on a GPU should train side by side.
    """
    if is_gpu := device == "cuda":
        torch.cuda.empty_cache()  # filled by earlier probes
        torch.cuda.reset_peak_memory_stats()
    training = config.training
    started = time.perf_counter()
    run = Run(config, seeds, device)
    set_up, seconds, slow = time.perf_counter() - started, 0.0, 0.0
    ends = [0, *training.phases.ends(training.n_batches)]
    for index, phase in enumerate(training.phases):
        run.stepper.enter(phase.trained, training.negatives_at(index))
        times = [_timed(lambda: run.stepper.advance(1, training.lr))]
        if is_gpu or times[0] < _LONG_S:  # a GPU's first batch is mostly compiling
            times = _times(lambda: run.stepper.advance(1, training.lr), n_batches)
        seconds += min(times) * (ends[index + 1] - ends[index])
        slow += sorted(times)[-2:][0] * (ends[index + 1] - ends[index])
    slowest = slow / seconds
    evaluation = _timed(lambda: run.step.task.evaluate(run.step.encoder))
    seconds += evaluation * -(-training.n_batches // training.eval_every)
    n_parameters = sum(parameter.numel() for parameter in run.step.encoder.parameters())
    n_bytes = 3 * 4 * n_parameters  # Adam keeps two numbers for each, four bytes each
    if not is_gpu:
        return Cost(set_up, seconds, n_bytes, slowest=slowest)
    # Memory that other processes use is not available to trials.
    memory = torch.cuda.max_memory_reserved(), torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved()
    cost = Cost(set_up, seconds, n_bytes, *memory, slowest=slowest, has_mps=_has_mps())
    if not is_grouped:
        return cost
    runs = [run]
    length = int(min(_BATCHES, max(_SLICE, _BESIDE_S * training.n_batches / seconds)))

    def seconds_of(n_runs: int) -> float:
        runs.extend(Run(config, seeds, device) for _ in range(n_runs - len(runs)))
        return side_by_side_seconds(runs, device, length)

    return with_side_by_side(cost, seconds_of)


def _has_mps() -> bool:
    """Return whether NVIDIA's MPS runs on this machine: whether anything listens on its control socket."""
    door = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")) / "control"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as visitor:
            visitor.connect(str(door))
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):  # refused: left over from one that ended
        return False
    except OSError:  # a socket of another kind
        pass
    return True


def side_by_side_seconds(runs: Sequence[Run], device: str, n_batches: int = _BATCHES) -> float:
    """Time some batches of every phase of all runs side by side in this process, with the evaluations that are due."""
    seconds = 0.0
    for index, phase in enumerate(runs[0].config.training.phases):
        for run in runs:
            run.stepper.enter(phase.trained, run.config.training.negatives_at(index))
            run.stepper.advance(4, run.config.training.lr)  # with the capture of one
        seconds += _timed(lambda: list(interleaved([_slices(run, n_batches) for run in runs], device)))
    return seconds


def _slices(run: Run, n_batches: int) -> Iterator[None]:
    training = run.config.training
    length = min(_SLICE, training.eval_every)
    for begin in range(0, n_batches, length):
        run.stepper.start(min(length, n_batches - begin), training.lr)
        yield
        run.stepper.wait()
        if length == training.eval_every:
            run.step.task.evaluate(run.step.encoder)


def _times(work: Callable[[], object], n_times: int) -> list[float]:
    """Time several calls: all but the fastest are slowed down by other work."""
    times: list[float] = []
    while len(times) < n_times and sum(times) < _LONG_S:
        times.append(_timed(work))
    return times


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def survive_forks() -> None:
    """Keep numpy's OpenBLAS from ever starting threads in this process.

    If one thread forks, as Ray does at its start, another that computes on them would wait for ever.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415  machines that only train may lack it

    threadpool_limits(1, user_api="blas")


def costs_of(trials: Sequence[Trial], device: str, n_threads: int, is_grouped: bool = False) -> list[Cost]:
    """Probe the first and the last trial, in a grid mostly the cheapest and the most expensive; only the first if slow.

    The probe has as many threads as a trial. For `is_grouped` see `probe`.
    """
    costs: list[Cost] = []
    started = time.perf_counter()
    with using_threads(n_threads):
        for trial in [trials[0], trials[-1]] if len(trials) > 1 else trials:
            if costs and time.perf_counter() - started > _ENOUGH_S:
                break
            with contextlib.suppress(ValueError, RuntimeError, MemoryError):  # it will show up as a failed trial
                trust(trial.config)  # on another node, nobody has named the study's files yet
                costs.append(probe(trial.run_config, trial.seeds, device, is_grouped))
    if device == "cuda":  # the trials will need the memory
        gc.collect()
        torch.cuda.empty_cache()
    return costs


@dataclass(frozen=True)
class Plan:
    """A study that is about to run."""

    space: SearchSpace
    spec: StudySpec
    folder: StudyFolder
    resources: Resources
    available: Mapping[str, float]  # of the cluster
    is_finalized: bool  # whether the best run on the report seeds

    def lines(self, costs: Sequence[Cost]) -> list[str]:
        """Return the plan in words; `costs`, of some trials of the first stage, stand for all trials."""
        spec, space = self.spec, self.space
        seeds = " ".join(map(str, spec.tuning_seeds))
        _, objectives = with_objectives(space, spec.objectives)
        by = ", ".join(f"{objective.metric} ({objective.mode.value})" for objective in objectives)
        lines = [
            f"study {self.folder.name}: space {space.name}, fidelity {spec.profile}, scale {spec.scale}, "
            f"data {spec.data}, seeds {seeds}, by {by}"
        ]
        if len(objectives) > 1:
            lines.append(f"  the Pareto front of them; the winner is the best by {objectives[0].metric}")
        is_grid = spec.method.kind == GRID
        lines += [f"  search: {spec.method.label}"] if spec.method != Method() else []
        for index, (stage, n) in enumerate(zip(space.stages, spec.n_trials(space), strict=True)):
            axes = " x ".join(f"{name} {{{_values(axis)}}}" for name, axis in stage.axes.items())
            of = "" if is_grid or stage.is_sampled else f" of {stage.n_cells} cells"
            after = " at the winner's settings" if index else ""
            lines.append(f"  stage {index + 1}: {n} trials{of}{after}: {axes}")
        if spec.replicate:
            lines.append(f"  {RULE}")
        if self.is_finalized:
            report = " ".join(map(str, spec.report_seeds))
            lines.append(f"  report: the best {N_REPORTED} on seeds {report}, which select nothing")
        done = sum(folder.result() is not None for folder in self.folder.trials())
        if done:
            lines.append(f"  done: {done} of {self.n_trials}")
        lines.append(told_resources(self.resources, self.available))
        if costs:
            lines.append(self._estimate(costs, done, self.resources.slots(dict(self.available))))
        return lines

    @property
    def n_trials(self) -> int:
        """Return the number of trials of all stages and the report."""
        return sum(self.spec.n_trials(self.space)) + (N_REPORTED if self.is_finalized else 0)

    def _estimate(self, costs: Sequence[Cost], done: int, slots: int) -> str:
        n_tuning = sum(self.spec.n_trials(self.space))
        more_seeds = len(self.spec.report_seeds) / len(self.spec.tuning_seeds)
        units = max(0, n_tuning - done) + (N_REPORTED * more_seeds if self.is_finalized else 0)
        return estimate(costs, units, self.n_trials, self.resources, slots)


def told_resources(resources: Resources, available: Mapping[str, float]) -> str:
    """Return in words the resources of a trial, and how many run at once."""
    gpus = f" and {resources.gpus:g} GPU" if resources.gpus else ""
    beside = f", {resources.side_by_side} side by side" if resources.side_by_side > 1 else ""
    slots = resources.slots(dict(available))
    there = f"{available.get('CPU', 0):g} CPU and {available.get('GPU', 0):g} GPU"
    how_many = f"{slots} at once" if slots else f"more than the {there} there are"
    return f"  each on {resources.cpus:g} CPU{gpus}{beside}, {how_many}"


def estimate(costs: Sequence[Cost], n_left: float, n_trials: int, resources: Resources, slots: int) -> str:
    """Return a study's estimated time, quiet to busy, and disk space in words, by the mean cost of some trials."""
    seconds = told_range(costs, n_left, resources, slots)
    mean = sum(cost.shared_run_s(resources) for cost in costs) / len(costs) + _set_up_s(costs)
    n_bytes = max(cost.n_bytes for cost in costs) * n_trials
    return (
        f"  estimated: {seconds} in all, {duration(mean)} a trial (probe of {len(costs)}), "
        f"{n_bytes / 1e6:,.0f} MB on disk"
    )


def told_range(
    costs: Sequence[Cost], n_left: float, resources: Resources, slots: int, times_longer: float = 1.0
) -> str:
    """Return a study's shortest and longest estimated time in words; for the arguments see `estimated_seconds`.

    Trials run as fast as the fastest measured batches, or as slowly as the slowest, and at least half as long again.
    """
    shortest = estimated_seconds(costs, n_left, resources, slots, times_longer)
    longer = max(_LEAST_RANGE, *(cost.slowest for cost in costs))
    return f"{duration(shortest)} to {duration(longer * shortest)}"


def estimated_seconds(
    costs: Sequence[Cost], n_left: float, resources: Resources, slots: int, times_longer: float = 1.0
) -> float:
    """Return a study's estimated seconds; its mean trial trains `times_longer` times as long as those of `costs`."""
    training = times_longer * sum(cost.shared_run_s(resources) for cost in costs) / len(costs)
    return resources.start_s + n_left * (training + _set_up_s(costs) + _OVERHEAD_S) / max(1, slots)


def _set_up_s(costs: Sequence[Cost]) -> float:
    return min(cost.set_up_s for cost in costs)


def _values(axis: object) -> str:
    if isinstance(axis, Variants):
        return ", ".join(axis.settings)
    if isinstance(axis, Domain):
        return axis.domain_str
    assert isinstance(axis, tuple)
    return ", ".join(str(value).lower() if isinstance(value, bool) else str(value) for value in axis)
