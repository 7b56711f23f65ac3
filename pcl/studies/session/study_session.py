"""The lifecycle of a study, the same for searches and for lists of trials, with or without a command line."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

from pcl.metrics.names import BEST_OBJECTIVE, CONSTANT_KAPPA_MAE, KAPPA_MAE
from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.execution.resources import Cost, Resources
from pcl.studies.execution.runner import TrialRunner
from pcl.studies.execution.trial_execution import Choices, Execution, close_study
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.lease import keep_outputs
from pcl.studies.ledger.opened_study import opened, write_objective
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.report.plan import survive_forks
from pcl.studies.results.selection import Outcome
from pcl.studies.results.yardsticks import common_constant_kappa_mae
from pcl.studies.search.stages import Finding
from pcl.studies.session.request import RunRequest
from pcl.studies.session.site import Site, machine, provenance
from pcl.studies.session.strategies import Say, StageSearch, Strategy
from pcl.studies.tracking.recorder import Recorder
from pcl.studies.tracking.run_content import Winner
from pcl.studies.tracking.tracker import End, StudyTags, Tracker

_LONGEST = 4000  # characters of what a study's description quotes; MLflow takes 5000
Kind_co = TypeVar("Kind_co", bound=Strategy, covariant=True)
_PROBING = "probing a few batches of the first and the last trial ..."
_MEASURING = "measuring how many trials to run on a GPU at once ..."


@dataclass(frozen=True)
class Study(Generic[Kind_co]):
    """A study that is about to run."""

    folder: StudyFolder
    spec: StudySpec
    tags: StudyTags  # by which MLflow finds it
    strategy: Kind_co  # how its trials are found, run and reported


def search_study(folder: StudyFolder, search: StageSearch) -> Study[StageSearch]:
    """Return a search as a study."""
    spec, metric = search.spec, search.objective.metric
    tags = StudyTags(search.space.name, spec.scale, spec.profile, metric, spec.data, *provenance())
    return Study(folder, spec, tags, search)


def preview(study: Study[Strategy], request: RunRequest, say: Say) -> None:
    """Print the plan of a study without opening it; trials are measured unless another cluster is asked for."""
    study.folder.pull()
    if request.address is None:
        say(_PROBING)
    costs = _costs(study, request, Site()) if request.address is None else []
    _say_plan(study, request, machine(request.address), costs, say)


def _costs(study: Study[Strategy], request: RunRequest, site: Site) -> list[Cost]:
    available, demand = site.available(), study.strategy.demand
    is_grouped = demand.is_groupable and request.is_measured(available, demand)
    return site.costs(study.strategy.probes(), request.resources_of(available), is_grouped)


def _say_plan(
    study: Study[Strategy], request: RunRequest, available: Mapping[str, float], costs: Sequence[Cost], say: Say
) -> Resources:
    """Print what will run; return a trial's resources."""
    resources = request.resources_of(available, costs, study.strategy.demand)
    for line in study.strategy.plan(study.folder, resources, available, costs):
        say(line)
    return resources


@dataclass(frozen=True)
class Record:
    """A study that is open in MLflow."""

    parent: str  # its run
    recorder: Recorder  # keeps its trials' runs in line


@dataclass(frozen=True)
class Client:
    """The caller of a session: a command, or a program that calls the Python API."""

    say: Say = print
    # How to resume a study that has ended early, such as a command
    how_to_resume: Callable[[StudyFolder], str] = lambda _: "the same call"
    # Surrounds the work on a study that is open; may turn errors into others
    guard: Callable[[StudyFolder], AbstractContextManager[None]] = lambda _: nullcontext()
    on_open: Callable[[Site], None] = lambda _: None  # called once MLflow has the study


class StudySession:
    """One study from its plan to its end in MLflow; `conduct` takes all steps."""

    def __init__(
        self, study: Study[Strategy], request: RunRequest, tracker: Tracker, interrupt: Interrupt,
        client: Client | None = None,
    ) -> None:  # fmt: skip
        self.study, self.request = study, request
        self._tracker, self._interrupt, self._client = tracker, interrupt, client or Client()
        self._probe: Future[list[Cost]] | None = None

    def conduct(self, site: Site) -> Finding:
        """Take all steps at a joined site; return what was found, even if interrupted."""
        with self.locked():
            resources = self.plan(site)
            record = self.open()
            with self._failing(record):
                self._client.on_open(site)
                finding = self.run(site.runner(resources), record)
                end = self.select(finding)
                told = self.report(finding, record)
            self.close(finding, end, record, told)
        return finding

    def measure(self) -> None:
        """Begin to measure trials in a thread of this process, such as while Ray starts; `plan` waits for the costs."""
        survive_forks()
        self._probe = ThreadPoolExecutor(1).submit(_costs, self.study, self.request, Site())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the study's folder, which is created if needed."""
        folder = self.study.folder
        with opened(folder, self.study.spec, self._interrupt.on_lost_lease), self._client.guard(folder):
            yield

    def plan(self, site: Site) -> Resources:
        """Size a trial's resources and print what will run."""
        available = dict(site.available())
        self.request.resources_of(available).require(available)
        costs: list[Cost] = []
        is_measured = self.request.is_measured(available, self.study.strategy.demand)
        if self.study.strategy.is_planned or is_measured:
            self._client.say(_MEASURING if is_measured else _PROBING)
            costs = self._probe.result() if self._probe else _costs(self.study, self.request, site)
        return _say_plan(self.study, self.request, available, costs, self._client.say)

    def open(self) -> Record:
        """Open the study in MLflow, and record in its folder what ranks its trials."""
        write_objective(self.study.folder, self.study.strategy.objective)
        parent = self._tracker.open_study(self.study.folder.name, self.study.tags)
        return Record(parent, Recorder(self._tracker))

    @contextmanager
    def _failing(self, record: Record) -> Iterator[None]:
        """End the study as failed in MLflow if an error ends the context, such as one in the client's functions.

        A second Ctrl-C waits for nothing.
        """
        try:
            yield
        except Exception:
            self._close(End.FAILED, None, record)
            raise

    def run(self, runner: TrialRunner, record: Record) -> Finding:
        """Run the trials without a known result."""
        study, request = self.study, self.request
        choices = Choices(runner, study.strategy.is_finalized, request.is_rerun, request.is_fail_fast)
        execution = Execution(
            study.strategy.objective, study.folder, self._tracker, record.recorder, choices, self._interrupt,
            self._client.say,
        )  # fmt: skip
        return study.strategy.run(execution, record.recorder, self._interrupt)

    def select(self, finding: Finding) -> End:
        """Decide whether the study has what it was run for."""
        return End.FINISHED if self.study.strategy.is_successful(finding) else End.FAILED

    def report(self, finding: Finding, record: Record) -> str:
        """Print and write the results; the files go to the study's store, if it has one, and to MLflow.

        Returns what was printed.
        """
        folder, say = self.study.folder, self._client.say
        told: list[str] = []

        def say_and_keep(line: str) -> None:
            told.append(line)
            say(line)

        files = self.study.strategy.report(folder, finding, say_and_keep)
        if finding.best is not None:
            for file in files.of_winner:
                record.recorder.submit_artifact(folder.trial(finding.best.trial.key), file)
        if self._interrupt.stop is None or self._interrupt.stop.reason is not StopReason.TAKEN_OVER:
            keep_outputs(folder, say)
        for file in files.of_study:
            record.recorder.submit_artifact(record.parent, file)
        return "\n".join(told)

    def close(self, finding: Finding, end: End, record: Record, told: str = "") -> None:
        """Wait for the records and end the study in MLflow; print what is missing there."""
        winner = None if finding.best is None else self._winner(finding, finding.best, told)
        self._close(End.KILLED if self._interrupt.stop else end, winner, record)

    def _winner(self, finding: Finding, best: Outcome, told: str) -> Winner:
        metrics = {name: best.mean(name) for name in sorted({name for m in best.by_seed.values() for name in m})}
        metrics[BEST_OBJECTIVE] = best.mean(self.study.strategy.objective.metric)
        constant = common_constant_kappa_mae(o.trial for outcomes in finding.stages.values() for o in outcomes)
        if KAPPA_MAE in metrics and constant is not None:
            metrics[CONSTANT_KAPPA_MAE] = constant
        table = "\n".join(line for line in told.strip().splitlines() if not line.startswith("written: "))
        if len(table) > _LONGEST:
            table = table[:_LONGEST].rpartition("\n")[0] + "\n..."
        block = f"\n\n```text\n{table}\n```" if table else ""
        return Winner(best.trial, metrics, f"Winner: {best.trial.label}{block}")

    def _close(self, end: End, winner: Winner | None, record: Record) -> None:
        if missing := close_study(self._tracker, record.recorder, end, winner):
            folder = self.study.folder
            self._client.say(
                f"MLflow lacks {len(missing)} records (such as {missing[0]}); they are kept in {folder.path}: "
                f"`{self._client.how_to_resume(folder)}` sends them."
            )
