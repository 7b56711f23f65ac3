"""The lifecycle of a study, the same for searches and for lists of trials, with or without a command line."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from pcl.studies.execution.interrupt import Interrupt, StopReason
from pcl.studies.execution.resources import Cost, Resources
from pcl.studies.execution.trial_execution import Choices, Execution, close_study
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.lease import keep_outputs
from pcl.studies.ledger.study_spec import StudySpec, opened
from pcl.studies.report.plan import survive_forks
from pcl.studies.search.stages import Finding
from pcl.studies.session.request import RunRequest
from pcl.studies.session.site import Site, costs_here, machine
from pcl.studies.session.strategies import Files, Say, Strategy
from pcl.studies.tracking.recorder import Recorder
from pcl.studies.tracking.tracker import End, StudyTags, Tracker


@dataclass(frozen=True)
class Study:
    """A study that is about to run.

    Attributes:
        folder: Where it is kept.
        spec: What it is.
        tags: By which MLflow finds it.
        strategy: How its trials are found, run and reported.
    """

    folder: StudyFolder
    spec: StudySpec
    tags: StudyTags
    strategy: Strategy


@dataclass(frozen=True)
class Client:
    """Who runs a study: a command, or a program that calls the Python API.

    Attributes:
        say: Prints a line.
        how_to_resume: What goes on with a study that has ended early, such as a command.
        guard: Surrounds the work on a study that is open; may turn errors into others.
        on_open: Called once MLflow has the study.
    """

    say: Say = print
    how_to_resume: Callable[[StudyFolder], str] = lambda _: "the same call"
    guard: Callable[[StudyFolder], AbstractContextManager[None]] = lambda _: nullcontext()
    on_open: Callable[[Site], None] = lambda _: None


class StudySession:
    """One study from its plan to its end in MLflow; `conduct` takes all steps.

    Args:
        study: What to run.
        request: How to run it.
        tracker: Of MLflow, checked.
        interrupt: Ends it early.
        client: Who runs it.
    """

    def __init__(
        self, study: Study, request: RunRequest, tracker: Tracker, interrupt: Interrupt, client: Client | None = None
    ) -> None:
        self.study, self.request = study, request
        self._tracker, self._interrupt, self._client = tracker, interrupt, client or Client()
        self._recorder = Recorder(tracker)
        self._probe: Future[list[Cost]] | None = None

    def conduct(self, site: Site) -> Finding:
        """Take all steps at a site that is joined."""
        with self.open():
            resources = self.plan(site)
            self._parent = self._tracker.open_study(self.study.folder.name, self.study.tags)
            self._client.on_open(site)
            finding = self.run(resources)
            end = self.select(finding)
            files = self.report(finding)
            self.close(finding, files, end)
        return finding

    def measure(self) -> None:
        """Begin to measure trials in this process, in a thread, as while Ray starts; `plan` waits for the costs."""
        survive_forks()
        self._probe = ThreadPoolExecutor(1).submit(self._costs, Site())
