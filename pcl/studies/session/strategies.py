"""Strategies of a study: a search goes stage by stage to a winner, a list of trials is run as it is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.resources import Cost, Demand, Resources
from pcl.studies.execution.trial_execution import Execution
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.report.outputs import figures, front_table, replication_table, table, write_all
from pcl.studies.report.plan import Plan, told_resources
from pcl.studies.results.pareto import with_objectives
from pcl.studies.results.selection import Outcome
from pcl.studies.results.yardsticks import shortcomings
from pcl.studies.search.stages import Finding, Search
from pcl.studies.space.labels import label
from pcl.studies.space.search_method import OPTUNA
from pcl.studies.space.search_space import Objective, SearchSpace
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.recorder import Recorder

Say = Callable[[str], None]


@dataclass(frozen=True)
class Files:
    """The files that a report has written."""

    of_study: Sequence[Path] = ()  # files of the study as a whole
    of_winner: Sequence[Path] = ()  # those that show the winner


class Strategy(Protocol):
    """A way to find, run and report a study's trials."""

    @property
    def objective(self) -> Objective:
        """The metric that is shown and, in a search, decides."""

    @property
    def is_planned(self) -> bool:
        """Return whether a plan is shown, for which trials are measured."""

    @property
    def is_finalized(self) -> bool:
        """Return whether the best run on the report seeds at the end."""

    @property
    def demand(self) -> Demand:
        """Return the trials that can run at once."""

    def probes(self) -> Sequence[Trial]:
        """Return trials that stand for all."""

    def plan(
        self, folder: StudyFolder, resources: Resources, available: Mapping[str, float], costs: Sequence[Cost]
    ) -> Sequence[str]:
        """Return the lines of the plan."""

    def run(self, execution: Execution, recorder: Recorder, interrupt: Interrupt) -> Finding:
        """Run the trials without a known result; return early if interrupted."""

    def is_successful(self, finding: Finding) -> bool:
        """Return whether the study has what it was run for."""

    def report(self, folder: StudyFolder, finding: Finding, say: Say) -> Files:
        """Print the results and write the study's files."""


@dataclass(frozen=True)
class StageSearch:
    """A search over the stages of a space."""

    space: SearchSpace
    spec: StudySpec
    is_finalized: bool = False  # whether the best run on the report seeds
    # Whether to show the plan and the tables and draw the winner, or only write files
    is_told: bool = True

    @property
    def decided(self) -> SearchSpace:
        """The space, ranked by the study's first objective; it has the paper's winner only on the paper's data."""
        space, _ = with_objectives(self.space, self.spec.objectives)
        published = space.published_for(self.spec.data)
        return space if published == space.published else replace(space, published=published)

    @property
    def objective(self) -> Objective:
        return self.decided.objective

    @property
    def is_planned(self) -> bool:
        return self.is_told

    @property
    def demand(self) -> Demand:
        """Return the trials of the largest stage; not grouped if they are proposed or stopped one by one."""
        method = self.spec.method
        return Demand(max(self.spec.n_trials(self.space)), method.kind != OPTUNA and not method.scheduler)

    def probes(self) -> list[Trial]:
        """Return the corners of the first stage."""
        return self.spec.corners(self.space)

    def plan(
        self, folder: StudyFolder, resources: Resources, available: Mapping[str, float], costs: Sequence[Cost]
    ) -> list[str]:
        return Plan(self.space, self.spec, folder, resources, available, self.is_finalized).lines(costs)

    def run(self, execution: Execution, recorder: Recorder, interrupt: Interrupt) -> Finding:
        return Search(self.space, self.spec, execution, recorder, interrupt).run()

    def is_successful(self, finding: Finding) -> bool:
        """Return whether there is a winner."""
        return finding.best is not None

    def report(self, folder: StudyFolder, finding: Finding, say: Say) -> Files:
        """Show the tables, write the files and draw the winner."""
        if self.is_told:
            self._tell(finding, say)
        files, drawn = write_all(folder, self.decided, self.spec, finding), list[Path]()
        if finding.best is not None:
            if self.is_told:
                drawn = figures(folder, finding.best, say)
            checkpoint = folder.trial(finding.best.trial.key).checkpoint
            files += [*drawn, *([checkpoint] if checkpoint.exists() else [])]
        if self.is_told:
            say("written: " + ", ".join(map(str, files)))
        return Files(files, drawn)

    def _tell(self, finding: Finding, say: Say) -> None:
        space = self.decided
        for name, outcomes in {**finding.stages, "report seeds": finding.report}.items():
            for line in [f"\n{name}", *table(outcomes, space)] if outcomes else ():
                say(line)
        for name, replication in finding.replications.items():
            for line in ["", *replication_table(name, replication, space)]:
                say(line)
        if finding.front:
            say("\n" + "\n".join(["Pareto front", *front_table(finding)]))
        if finding.best is not None:
            by = f" (by {space.objective.metric}, the first objective)" if finding.front else ""
            say("; ".join([f"\nwinner: {finding.best.trial.label}{by}", *shortcomings(finding.best)]))
            if space.published:
                say(f"published winner: {label(space.published)}")


@dataclass(frozen=True)
class TrialList:
    """A list of trials that are known beforehand."""

    objective: Objective  # the metric that is shown
    trials: Sequence[Trial]
    title: str  # heading above them
    # Prints and writes the results; returns the files
    write: Callable[[list[Outcome]], Sequence[Path]] = field(default=lambda _: ())

    is_planned = is_finalized = False

    @property
    def demand(self) -> Demand:
        return Demand(len(self.trials))

    def probes(self) -> Sequence[Trial]:
        """Return all: the first and the last are measured."""
        return self.trials

    def plan(
        self, folder: StudyFolder, resources: Resources, available: Mapping[str, float], costs: Sequence[Cost]
    ) -> Sequence[str]:
        """Return each trial's resources if they were measured; the caller has shown the rest of the plan."""
        return [told_resources(resources, available)] if costs else []

    def run(self, execution: Execution, recorder: Recorder, interrupt: Interrupt) -> Finding:
        """Run the list; its outcomes are in the same order."""
        return Finding(stages={self.title: execution.run_all(list(self.trials), self.title)})

    def is_successful(self, finding: Finding) -> bool:
        return any(outcome.is_finished for outcome in finding.outcomes)

    def report(self, folder: StudyFolder, finding: Finding, say: Say) -> Files:
        """Write what the list was made for."""
        return Files(self.write(finding.outcomes))
