"""The lifecycle of a study, with neither Ray nor MLflow: what it does, in which order, and how it ends."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pcl.config.run_config import RunConfig
from pcl.metrics.names import CONSTANT_KAPPA_MAE, KAPPA_MAE
from pcl.storage.mirror import Mirrored
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.execution.resources import Cost, Demand, Resources
from pcl.studies.execution.trial_execution import Execution
from pcl.studies.ledger.folders import Result, Status, StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.report.plan import estimated_seconds
from pcl.studies.results.selection import Outcome
from pcl.studies.results.yardsticks import trial_constant_kappa_mae
from pcl.studies.search.stages import Finding
from pcl.studies.session.request import ResourceRequest, Runner, RunRequest
from pcl.studies.session.site import Site
from pcl.studies.session.strategies import Files, StageSearch, TrialList
from pcl.studies.session.study_session import Client, Study, StudySession
from pcl.studies.space.search_method import ASHA, OPTUNA, RANDOM, Method
from pcl.studies.space.search_space import Objective, load_space
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.run_content import Winner
from pcl.studies.tracking.tracker import End
from tests.support.trackers import TAGS, report

METRIC = "eval/kappa_rank_corr"
TRIAL = Trial(RunConfig.of(scale="smoke").flat(), (1,), "grid")
BEST = Outcome(TRIAL, Result(Status.FINISHED), {1: {METRIC: 0.5}})
SPEC = StudySpec("x", "", "paper", "smoke")
SITE = Site(lambda: {"CPU": 4.0}, lambda trials, resources, is_grouped: [])


@dataclass
class Canned:
    """A strategy that finds what it is told to, and writes down in which order it is asked."""

    steps: list[str]
    finding: Finding = field(default_factory=lambda: Finding({"grid": [BEST]}, BEST))
    while_running: Callable[[Interrupt], None] = lambda _: None
    objective = Objective(METRIC)
    is_planned = True
    is_finalized = False
    demand = Demand()

    def probes(self) -> list[Trial]:
        return [TRIAL]

    def plan(
        self, folder: StudyFolder, resources: Resources, available: Mapping[str, float], costs: Sequence[Cost]
    ) -> list[str]:
        return [f"plan: {resources.slots(dict(available))} at once"]

    def run(self, execution: Execution, recorder: Any, interrupt: Interrupt) -> Finding:
        self.steps.append("run")
        self.while_running(interrupt)
        return self.finding

    def is_successful(self, finding: Finding) -> bool:
        return finding.best is not None

    def report(self, folder: StudyFolder, finding: Finding, say: Callable[[str], None]) -> Files:
        self.steps.append("report")
        (folder.path / "summary.json").write_text("{}")
        return Files([folder.path / "summary.json"], [folder.path / "kappa.png"])


class Home:
    """A study's folder, a tracker that remembers, and what a client sees."""

    def __init__(self, path: Path, store: str = "") -> None:
        self.steps: list[str] = []
        self.folder = StudyFolder(path / "s", Mirrored(path / "s", store)) if store else StudyFolder(path / "s")
        self.request = RunRequest(Storage(path))
        self.interrupt = Interrupt()
        self.ends: list[End] = []
        self.summaries: list[Winner] = []
        self.artifacts: list[tuple[str, str]] = []
        self.tracker: Any = SimpleNamespace(
            store=SimpleNamespace(database=True, n_answers=0),
            open_study=lambda *_: self.steps.append("open") or "parent",
            log_artifact=lambda owner, path: self.artifacts.append((getattr(owner, "key", owner), path.name)),
            summarize=self.summaries.append,
            close_study=self.ends.append,
        )

    def conduct(self, strategy: Any) -> Finding:
        @contextmanager
        def guard(_: StudyFolder) -> Iterator[None]:
            self.steps.append("guard")
            yield

        client = Client(self.steps.append, lambda _: "again", guard, lambda _: self.steps.append("on open"))
        study = Study(self.folder, SPEC, TAGS, strategy)
        return StudySession(study, self.request, self.tracker, self.interrupt, client).conduct(SITE)


def test_the_steps_of_a_study(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert home.conduct(Canned(home.steps)).best is BEST
    steps = [step for step in home.steps if not step.startswith("probing ")]
    assert steps == ["guard", "plan: 4 at once", "open", "on open", "run", "report"]
    assert home.ends == [End.FINISHED]
    (winner,) = home.summaries
    assert (winner.trial, winner.metrics["best/objective"]) == (TRIAL, 0.5)
    assert winner.description == f"Winner: {TRIAL.label}"
    assert sorted(home.artifacts) == sorted([(TRIAL.key, "kappa.png"), ("parent", "summary.json")])
    assert StudySpec.read(home.folder) == SPEC


@pytest.mark.parametrize("values", [{METRIC: 0.5}, {METRIC: 0.5, KAPPA_MAE: 3.0}])
def test_a_study_records_the_best_constant_beside_kappas_error_alone(tmp_path: Path, values: dict[str, float]) -> None:
    home, best = Home(tmp_path), Outcome(TRIAL, Result(Status.FINISHED), {1: values})
    home.conduct(Canned(home.steps, Finding({"grid": [best]}, best)))
    (winner,) = home.summaries
    expected = trial_constant_kappa_mae(TRIAL) if KAPPA_MAE in values else None
    assert winner.metrics.get(CONSTANT_KAPPA_MAE) == expected
    assert (expected is None) == (KAPPA_MAE not in values)


def test_a_study_without_a_winner_has_failed(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.conduct(Canned(home.steps, Finding()))
    assert (home.ends, home.summaries) == ([End.FAILED], [])


@pytest.mark.parametrize("failing", ["on open", "run"])
def test_an_error_of_the_caller_ends_the_study_in_mlflow_too(tmp_path: Path, failing: str) -> None:
    """Such as one of what it is told by."""

    class Steps(list[str]):
        def append(self, step: str) -> None:
            super().append(step)
            if step == failing:
                raise KeyError("of the caller")

    home = Home(tmp_path)
    home.steps = Steps()
    with pytest.raises(KeyError, match="of the caller"):
        home.conduct(Canned(home.steps))
    assert home.steps[-1] == failing
    assert home.ends == [End.FAILED]


def test_resources_that_no_machine_has_end_it_before_mlflow_has_it(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.request = RunRequest(Storage(tmp_path), resources=ResourceRequest(cpus=5))
    with pytest.raises(ValueError, match="A trial asks for 5 CPUs"):
        home.conduct(Canned(home.steps))
    assert home.steps == ["guard"]


@pytest.mark.parametrize("is_taken_over", [False, True])
def test_what_another_process_has_taken_over_is_not_overwritten(tmp_path: Path, is_taken_over: bool) -> None:
    home = Home(tmp_path, (tmp_path / "store" / "s").as_uri())

    def stop(interrupt: Interrupt) -> None:
        if is_taken_over:
            interrupt.on_lost_lease()
        else:
            interrupt.set(StopReason.TRIAL_FAILED, "as it happens")

    home.conduct(Canned(home.steps, while_running=stop))
    assert home.ends == [End.KILLED]
    assert (tmp_path / "store" / "s" / "summary.json").exists() != is_taken_over


def test_a_list_that_is_known_runs_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path)
    trial = home.folder.trial(TRIAL.key)
    trial.begin(TRIAL)
    report(trial, int(str(TRIAL.config["training.n_batches"])))
    trial.close(Result(Status.FINISHED))
    home.tracker.sync = lambda folder: None
    seen: list[list[Outcome]] = []
    home.conduct(TrialList(Objective(METRIC), [TRIAL], "cells", lambda outcomes: seen.append(outcomes) or []))
    assert [outcome.trial for outcome in seen[0]] == [TRIAL]
    assert "cells (1 trials, 1 known)" in home.steps
    assert home.ends == [End.FINISHED]


@pytest.mark.parametrize(
    ("asked", "available", "expected"),
    [
        (ResourceRequest(), {"CPU": 2.0}, Resources(1.0, 0.0)),
        (ResourceRequest(gpus=1.0), {"CPU": 2.0, "GPU": 2.0}, Resources(1.0, 1.0)),
        (ResourceRequest(2.0, 0.25, None, 3), {"GPU": 1.0}, Resources(2.0, 0.25, 3)),
        (ResourceRequest(), {"GPU": 1.0}, Resources(1.0, 1.0, 0, 4)),
        (ResourceRequest(side_by_side=2), {"GPU": 1.0}, Resources(1.0, 1.0, 0, 2)),
    ],
)
def test_what_is_asked_for_becomes_resources(
    asked: ResourceRequest, available: dict[str, float], expected: Resources
) -> None:
    assert asked.resources(available, [Cost(1.0, 1.0, 1, 1, 2**40, 4, 2.0)], Demand(36)) == expected


GROUPED, ALONE = [Cost(1.0, 60.0, 1, 1, 2**40, 4, 2.0)], [Cost(0.0, 60.0, 1, 1, 2**40, has_mps=True)]


@pytest.mark.parametrize(
    ("asked", "n_gpus", "n_trials", "costs", "share", "side_by_side"),
    [
        (ResourceRequest(), 4, 4, GROUPED, 1.0, 1),  # each has a GPU
        (ResourceRequest(), 4, 4, ALONE, 1.0, 1),
        (ResourceRequest(), 4, 5, GROUPED, 1.0, 2),
        (ResourceRequest(), 4, 5, ALONE, 0.5, 1),
        (ResourceRequest(), 4, 36, GROUPED, 1.0, 4),
        (ResourceRequest(), 4, 36, ALONE, 0.25, 1),
        (ResourceRequest(most_at_once=2), 1, 36, GROUPED, 1.0, 2),
        (ResourceRequest(most_at_once=1), 1, 36, ALONE, 1.0, 1),
        (ResourceRequest(), 1, 36, [], 1.0, 1),  # nothing could be measured
    ],
)
def test_no_gpu_is_shared_while_another_is_idle(
    asked: ResourceRequest, n_gpus: int, n_trials: int, costs: list[Cost], share: float, side_by_side: int
) -> None:
    found = asked.resources({"CPU": 64.0, "GPU": n_gpus}, costs, Demand(n_trials))
    assert (found.gpus, found.side_by_side) == (share, side_by_side)


@pytest.mark.parametrize(("method", "is_groupable"), [
    (Method(), True), (Method(RANDOM, (9,)), True), (Method(OPTUNA, (9,), sampler="tpe"), False),
    (Method(scheduler=ASHA), False),
])  # fmt: skip
def test_trials_that_are_decided_about_one_by_one_are_not_grouped(method: Method, is_groupable: bool) -> None:
    space = load_space("toy_elk")
    spec = StudySpec(space.name, space.fingerprint(), "reference", "smoke", method=method)
    assert StageSearch(space, spec).demand == Demand(9 if method.n_trials else 12, is_groupable)


@pytest.mark.parametrize(("n_trials", "is_measured"), [(1, False), (2, True)])
def test_sharing_is_measured_where_trials_outnumber_gpus(tmp_path: Path, n_trials: int, is_measured: bool) -> None:
    asked: list[bool] = []

    def costs(trials: Sequence[Trial], resources: Resources, is_grouped: bool) -> list[Cost]:
        asked.append(is_grouped)
        return GROUPED

    said: list[str] = []
    home, listed = Home(tmp_path), TrialList(Objective(METRIC), [TRIAL] * n_trials, "trials")
    study = Study(home.folder, SPEC, TAGS, listed)
    session = StudySession(study, home.request, home.tracker, home.interrupt, Client(said.append))
    found = session.plan(Site(lambda: {"CPU": 4.0, "GPU": 1.0}, costs))
    assert asked == [True] * is_measured
    assert found.side_by_side == n_trials
    assert ("measuring" in said[0] and "2 side by side" in said[1]) if is_measured else not said


def test_trials_in_this_process_wait_for_no_ray_and_share_no_gpu(tmp_path: Path) -> None:
    costs, available = [Cost(1.0, 60.0, 1, 1, 2**40, 4, 2.0)], {"CPU": 2.0, "GPU": 1.0}
    ray, inline = (RunRequest(Storage(tmp_path), resources=ResourceRequest(), runner=runner) for runner in Runner)
    many = Demand(36)
    assert (ray.is_measured(available, many), inline.is_measured(available, many)) == (True, False)
    assert not ray.is_measured({"CPU": 2.0}, many)
    resources = inline.resources_of(available, costs)
    assert (resources.gpus, resources.side_by_side, resources.slots(available)) == (1.0, 1, 1)
    waited = estimated_seconds(costs, 0, ray.resources_of(available, costs), 1)
    assert waited > estimated_seconds(costs, 0, resources, 1) == 0.0


def test_a_part_of_a_second_gpu_is_refused() -> None:
    with pytest.raises(ValueError, match=r"but got 1 and 1\.5"):
        ResourceRequest(gpus=1.5).resources({"GPU": 2.0})
    with pytest.raises(ValueError, match="must be a number or 'auto', but got None"):
        ResourceRequest(gpus=None)  # type: ignore[arg-type]


def test_own_images_are_not_compared_with_the_published_winner() -> None:
    space = load_space("cifar_mcinfonce")
    for data, published in (("cifar10h-0123456789abcdef", space.published), ("cats-0123456789abcdef", {})):
        spec = StudySpec(space.name, space.fingerprint(), "reference", "smoke", data=data)
        assert StageSearch(space, spec).decided.published == published
