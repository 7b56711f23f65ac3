"""How trials share processes and GPUs."""

import math
import socket
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pcl.studies.execution import ray_runner
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.ray_runner import RayRunner
from pcl.studies.execution.resources import Cost, Resources, gpu_share, with_side_by_side
from pcl.studies.execution.runner import Assignment, Source
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.report import plan
from pcl.studies.report.plan import costs_of, probe, side_by_side_seconds
from pcl.studies.space.trial import Trial
from pcl.training.interleaving import interleaved
from pcl.training.run import Run
from pcl.training.steps.stepper import PlainStepper
from tests.support.services import without_times
from tests.support.smoke import smoke


def test_resources() -> None:
    assert Resources(1, 0).slots({"CPU": 2.0}) == 2
    assert Resources(1, 0.25).slots({"CPU": 16.0, "GPU": 2.0}) == 8
    assert Resources(1, 0, most_at_once=1).slots({"CPU": 2.0}) == 1
    with pytest.raises(ValueError, match="asks for 1 CPUs and 1 GPUs, but the cluster has 2 and 0"):
        Resources(1, 1).require({"CPU": 2.0})


@pytest.mark.parametrize(
    ("n_trials", "most_at_once", "groups"),
    [
        (12, 0, (4, 0)),  # three each on two GPUs would do, but so do four, four and four
        (5, 0, (3, 0)),  # every GPU has some
        (2, 0, (1, 0)),
        (12, 3, (3, 1)),
        (12, 8, (4, 2)),
    ],
)
def test_trials_side_by_side_fill_all_places_first(n_trials: int, most_at_once: int, groups: tuple[int, int]) -> None:
    resources = Resources(1, 1, most_at_once, side_by_side=4)
    assert Resources(1, 1, side_by_side=4).slots({"CPU": 16.0, "GPU": 2.0}) == 8
    assert resources.groups(n_trials, slots=8) == groups


@pytest.mark.parametrize(
    ("seconds", "gpu_bytes", "n_trials"),
    [
        ({1: 1.0, 2: 1.1, 4: 1.5}, 1, 4),
        ({1: 1.0, 2: 1.1, 4: 2.1}, 1, 2),  # four take as long as twice two
        ({1: 1.0, 2: 1.95}, 1, 1),
        ({1: 1.0, 2: 1.1}, 30, 2),  # no room for four
        ({1: 1.0}, 60, 1),
    ],
)
def test_as_many_share_a_process_as_get_most_done(seconds: dict[int, float], gpu_bytes: int, n_trials: int) -> None:
    cost = with_side_by_side(Cost(1.0, 60.0, 1, gpu_bytes, 100), seconds.__getitem__)
    assert cost.side_by_side == n_trials
    assert cost.shared_run_s(Resources(1, 1, side_by_side=n_trials)) == pytest.approx(60 * seconds[n_trials])


def test_under_mps_trials_have_processes_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is measured then; the pipe of its control service tells."""
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    assert not plan._has_mps()
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "control"))
        door.listen()
        assert plan._has_mps()
    assert not plan._has_mps()  # it has ended, and its socket is still there
    cost = Cost(1.0, 60.0, 1, 1, 100, has_mps=True)
    assert with_side_by_side(cost, {}.__getitem__).side_by_side == 1


@pytest.mark.parametrize(("has_mps", "seconds"), [(False, 240.0), (True, 240 / 1.55)])
def test_processes_on_a_gpu_are_not_for_free(has_mps: bool, seconds: float) -> None:
    cost = Cost(0.0, 60.0, 1, 1, 100, has_mps=has_mps)
    assert cost.shared_run_s(Resources(1, 0.25)) == pytest.approx(seconds)
    assert cost.shared_run_s(Resources(1, 1)) == cost.shared_run_s(Resources(1, 0)) == 60


def test_trials_whose_worker_died_too_often_are_tried_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three ends its worker; whoever is beside it has no result either."""
    trials = [Trial({"training.lr": lr}, (1,), "grid") for lr in (0.1, 0.2, 0.3)]
    study = StudyFolder(tmp_path / "study")
    sizes = []

    def fit(runner: RayRunner, source: Source, assignment: Assignment, size: int, n_workers: int) -> None:
        left = iter(source.next, None)
        groups = list(iter(lambda: list(islice(left, size)), []))
        sizes.append([len(group) for group in groups])
        for trial in [trial for group in groups if trials[1] not in group for trial in group]:
            folder = study.trial(trial.key)
            folder.begin(trial)
            folder.close(Result(Status.FINISHED))

    monkeypatch.setattr(RayRunner, "_fit", fit)
    monkeypatch.setattr(ray_runner, "available_resources", lambda: {"CPU": 1.0})
    ended: list[str] = []
    listener: Any = SimpleNamespace(ended=lambda folder: ended.append(folder.key))
    RayRunner(Resources(side_by_side=2)).run_trials(trials, Assignment(study, "x", listener, Interrupt()))
    assert sizes == [[2, 1], [1, 1]]
    assert [study.trial(trial.key).result().status for trial in trials] == [  # type: ignore[union-attr]
        Status.FINISHED, Status.FAILED, Status.FINISHED,
    ]  # fmt: skip
    assert ended == [trials[1].key]


def test_trainings_in_turns_are_those_of_each_alone() -> None:
    configs = [smoke(), smoke(loss__n_samples=2, training__phases="joint")]
    alone = [[report.by_seed for report in Run(config, (1,))] for config in configs]
    together: list[list[dict[int, dict[str, float]]]] = [[], []]
    for index, report in interleaved([Run(config, (1,)).moments() for config in configs], "cpu"):
        if report is not None:
            together[index].append(report.by_seed)
    for ours, theirs in zip(together, alone, strict=True):
        assert [without_times(by_seed) for by_seed in ours] == [without_times(by_seed) for by_seed in theirs]


def test_a_training_that_has_reported_goes_on_before_others_have_their_turn() -> None:
    """Else a GPU is idle while one after the other evaluates."""
    log: list[str] = []

    def training(name: str) -> Iterator[str | None]:
        for _ in range(2):
            log.append(f"{name} starts")
            yield None
            log.append(f"{name} reports")
            yield name

    told = [value for _, value in interleaved([training("a"), training("b")], "cpu") if value is not None]
    assert log == ["a starts", "b starts", "a reports", "a starts", "b reports", "b starts", "a reports", "b reports"]
    assert told == ["a", "b", "a", "b"]


def test_evaluations_count_in_what_side_by_side_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_SLICE", 5)
    runs = [Run(smoke(training__eval_every=2), (1,)) for _ in range(2)]
    n_evaluations = 0

    def evaluate(encoder: object) -> dict[str, float]:
        nonlocal n_evaluations
        n_evaluations += 1
        return {}

    for run in runs:
        monkeypatch.setattr(run.step.task, "evaluate", evaluate)
    side_by_side_seconds(runs, "cpu", 6)
    assert n_evaluations == len(runs) * len(runs[0].config.training.phases) * 3


def test_probe_reckons_with_every_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock by which a batch, and an evaluation, takes a second."""
    monkeypatch.setattr(plan, "_timed", lambda work: (work() and 1.0) or 1.0)
    for n_batches in (1000, 100_000):
        config = smoke(training__n_batches=n_batches)
        cost = probe(config, (1,), "cpu")
        assert cost.run_s == n_batches + math.ceil(n_batches / config.training.eval_every)
        assert cost.n_bytes > 0
    monkeypatch.undo()
    assert 0 < probe(smoke(), (1,), "cpu").run_s < math.inf


@pytest.mark.parametrize(("seconds", "n_batches", "n_trials"), [(0.9, 6, 2), (3.0, 3, 2), (20.0, 1, 1)])
def test_probes_of_slow_trials_are_short(
    seconds: float, n_batches: int, n_trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock by which a batch, and an evaluation, takes so long."""
    clock, advanced = [0.0], []
    monkeypatch.setattr(plan, "probe", probe)  # and not one that remembers what it measured
    monkeypatch.setattr(plan.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(plan, "_timed", lambda work: (work(), clock.append(clock.pop() + seconds), seconds)[2])
    monkeypatch.setattr(PlainStepper, "advance", lambda *_: advanced.append(clock[0]))
    trials = [Trial(smoke().flat(), (seed,), "grid") for seed in (1, 2, 3)]
    assert len(costs_of(trials, "cpu", 1)) == n_trials
    assert len(advanced) == n_batches * len(smoke().training.phases) * n_trials
    assert clock[0] <= 60


def test_the_first_batch_on_a_gpu_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """It compiles."""
    slow = iter([100.0])
    monkeypatch.setattr(plan, "_timed", lambda work: (work(), next(slow, 0.001))[1])
    memory = {"max_memory_reserved": lambda: 1, "mem_get_info": lambda: (1, 2), "empty_cache": int,
              "memory_reserved": int, "reset_peak_memory_stats": int}  # fmt: skip
    for name, answer in memory.items():
        monkeypatch.setattr(f"torch.cuda.{name}", answer)
    monkeypatch.setattr(plan, "Run", lambda config, seeds, _: Run(config, seeds))
    assert probe(smoke(), (1,), "cuda").run_s < 1


GB = 10**9


@pytest.mark.parametrize(
    ("costs", "n_trials"),
    [
        ([], 1),
        ([Cost(9.0, 1.0, 1)], 1),  # no GPU
        ([Cost(0.0, 60.0, 1, GB, 140 * GB)], 1),  # it is never idle
        ([Cost(5.0, 55.0, 1, GB, 140 * GB)], 1),
        ([Cost(30.0, 15.0, 1, GB, 140 * GB)], 3),  # two set up while one trains
        ([Cost(30.0, 15.0, 1, 10 * GB, 24 * GB)], 2),  # but a third has no room
        ([Cost(30.0, 15.0, 1, 23 * GB, 24 * GB)], 1),
        ([Cost(30.0, 5.0, 1, GB, 140 * GB), Cost(12.0, 1.0, 1, GB, 140 * GB)], 5),  # the least set-up, the mean run
        ([Cost(600.0, 1.0, 1, GB, 140 * GB)], 16),
        ([Cost(0.0, 60.0, 1, GB, 140 * GB, has_mps=True)], 4),  # at the same time
        ([Cost(0.0, 60.0, 1, 10 * GB, 24 * GB, has_mps=True)], 2),
        ([Cost(600.0, 1.0, 1, GB, 140 * GB, has_mps=True)], 16),
    ],
)
def test_trials_share_a_gpu_as_memory_and_time_allow(costs: list[Cost], n_trials: int) -> None:
    share = gpu_share(costs)
    assert Resources(1, share).slots({"CPU": 64.0, "GPU": 2.0}) == 2 * n_trials
    assert n_trials * math.ceil(1e4 * share) <= 1e4  # Ray counts so


@pytest.mark.gpu
def test_probe_knows_the_gpus_memory() -> None:
    cost = probe(smoke(), (1,), "cuda")
    assert 0 < cost.gpu_bytes < cost.gpu_total


@pytest.mark.gpu
def test_trainings_on_streams_of_their_own_are_those_of_each_alone() -> None:
    configs = [smoke(), smoke(loss__kappa_pos=5.0), smoke(training__lr=1e-3)]
    alone = [[report.by_seed for report in Run(config, (1,), "cuda")] for config in configs]
    parts = [Run(config, (1,), "cuda").moments() for config in configs]
    together: list[list[dict[int, dict[str, float]]]] = [[], [], []]
    for index, report in interleaved(parts, "cuda"):
        if report is not None:
            together[index].append(report.by_seed)
    for ours, theirs in zip(together, alone, strict=True):
        for mine, other in zip(ours, theirs, strict=True):
            assert without_times(mine)[1] == pytest.approx(without_times(other)[1], rel=1e-3, abs=1e-3)


def test_what_side_by_side_takes_is_measured_in_every_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "_SLICE", 5)
    runs = [Run(smoke(), (1,)) for _ in range(2)]
    assert side_by_side_seconds(runs, "cpu", 7) > 0
    n_phases = len(runs[0].config.training.phases)
    assert [run.stepper._n_summed for run in runs] == [n_phases * (4 + 7)] * 2
