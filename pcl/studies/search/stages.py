"""The run of a study from its first stage to the report: reuse known results, run the rest, select, report."""

from dataclasses import dataclass, field, replace

from pcl.config.run_config import Plain
from pcl.studies.execution.early_stopping import EarlyStopping
from pcl.studies.execution.interrupt import Interrupt
from pcl.studies.execution.trial_execution import Execution
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.results.pareto import pareto_front, with_objectives
from pcl.studies.results.replication import MOST_ROUNDS, Replication, concluded, new_seeds, together, unclear
from pcl.studies.results.selection import Outcome, ranked, winner
from pcl.studies.space.search_method import ASHA, GRID, OPTUNA
from pcl.studies.space.search_space import Objective, SearchSpace
from pcl.studies.space.trial import REPLICATE_STAGE, REPORT_STAGE, Trial
from pcl.studies.tracking.recorder import Recorder

N_REPORTED = 3  # configurations that are run on the report seeds: the winner and the next two


@dataclass
class Finding:
    """The results of a study."""

    # Outcomes of every stage that was started, best first
    stages: dict[str, list[Outcome]] = field(default_factory=dict)
    # The winner of the last stage, once all stages have ended; an earlier stage's winner if the last stage was
    # searched only in part and has none as good
    best: Outcome | None = None
    report: list[Outcome] = field(default_factory=list)  # outcomes on the report seeds, in the order of the selection
    objectives: tuple[Objective, ...] = ()  # all objectives; the first decides
    front: list[Outcome] = field(default_factory=list)  # non-dominated trials of all stages; empty for one objective
    # Replications of all stages that were replicated
    replications: dict[str, Replication] = field(default_factory=dict)
    replicates: list[Outcome] = field(default_factory=list)  # their trials, as they were run

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for stage in self.stages.values() for outcome in stage] + self.report


class Search:
    """The search of a study; see `run`. Its `space` ranks by the first of the study's objectives."""

    def __init__(
        self, space: SearchSpace, spec: StudySpec, execution: Execution, recorder: Recorder, interrupt: Interrupt
    ) -> None:
        self.spec, self.folder = spec, execution.folder
        self.space, self.objectives = with_objectives(space, spec.objectives)
        self._recorder, self._interrupt = recorder, interrupt
        self._execution, self._choices = execution, execution.choices

    def run(self) -> Finding:
        """Run all stages, then the report; return early if interrupted or if a stage has no winner."""
        finding = Finding(objectives=self.objectives)
        candidates: list[Outcome] = []
        varied: dict[str, Plain] = {}
        for index, stage in enumerate(self.space.stages):
            title = f"stage {index + 1} of {len(self.space.stages)}: {stage.name}"
            if self.spec.method.kind == OPTUNA:
                outcomes = self._run_proposed(index, varied, title)
            else:
                outcomes = self._run_all(self.spec.trials(self.space, index, varied), title)
            finding.stages[stage.name] = ranked(outcomes, self.space.objective)
            compared = self._replicated(outcomes, stage.name, finding) if self.spec.replicate else []
            if len(self.objectives) > 1:
                finding.front = pareto_front(finding.outcomes, self.objectives)
            best = winner(compared[:1] or outcomes, self.space.objective)
            if self._interrupt.is_set() or best is None:
                return finding
            varied = best.trial.varied
            keys = {outcome.trial.key for outcome in outcomes}
            # A whole grid usually has the earlier winner among its cells.
            is_partial = self.spec.method.kind != GRID
            earlier = [outcome for outcome in candidates[:1] if is_partial and outcome.trial.key not in keys]
            again = {outcome.trial.key for outcome in compared}
            rest = [outcome for outcome in outcomes if outcome.trial.key not in again]
            # Those that were compared on more seeds are in order already and come first.
            candidates = ranked([*(compared[:1] or rest), *earlier], self.space.objective)
            candidates += [*compared[1:], *ranked(rest, self.space.objective)] if compared else []
        finding.best = winner(candidates[:1], self.space.objective)
        if self._choices.is_finalized:
            chosen = [outcome for outcome in candidates if outcome.is_finished][:N_REPORTED]
            trials = [replace(o.trial, seeds=self.spec.report_seeds, stage=REPORT_STAGE) for o in chosen]
            finding.report = self._run_all(trials, f"report: the best {len(trials)} on the report seeds")
        return finding

    def _replicated(self, outcomes: list[Outcome], stage: str, finding: Finding) -> list[Outcome]:
        """Return the best of a stage on more seeds, best first; empty if the winner is clear: see `replication`."""
        objective, known = self.space.objective, [*self.spec.tuning_seeds, *self.spec.report_seeds]
        compared: dict[str, Outcome] = {}
        left, n_rounds = unclear(outcomes, objective), 0
        while len(left) > 1 and n_rounds < MOST_ROUNDS and not self._interrupt.is_set():
            seeds = new_seeds(known, n_rounds)
            n_rounds += 1
            trials = [replace(o.trial, seeds=seeds, stage=REPLICATE_STAGE) for o in left]
            named = ", ".join(map(str, seeds))
            more = self._run_all(trials, f"replication {n_rounds} of {stage}: the best {len(left)} on seeds {named}")
            finding.replicates += more
            pooled = [together(outcome, new) for outcome, new in zip(left, more, strict=True)]
            compared |= {outcome.trial.key: outcome for outcome in pooled}
            left = unclear(pooled, objective)
        excluded = [outcome for key, outcome in compared.items() if key not in {o.trial.key for o in left}]
        finding.replications[stage] = concluded(left, excluded, objective, n_rounds)
        return finding.replications[stage].compared

    def _run_all(self, trials: list[Trial], title: str) -> list[Outcome]:
        stopping = self._stopping(trials[0].stage) if trials else None
        return self._execution.run_all(trials, title, stopping)

    def _run_proposed(self, index: int, winner: dict[str, Plain], title: str) -> list[Outcome]:
        """Return the outcomes of all trials that Optuna proposes, run or known, and of those that it started with."""
        from pcl.studies.search.proposals import Proposer  # noqa: PLC0415  Optuna takes a second

        proposer = Proposer(
            self.space, self.spec, self.folder, index, winner, self.objectives, self._execution.reuse,
            self._recorder.submit, is_rerun=self._choices.is_rerun,
        )  # fmt: skip
        is_left = not self._interrupt.is_set() and proposer.has_next()
        outcomes = [Outcome.of(trial, self.folder.trial(trial.key)) for trial in proposer.trials]
        before = [outcome for outcome in outcomes if outcome.result is not None]
        self._execution.announce(title, proposer.n_trials, before)
        if is_left:
            with self._execution.progress(self.space.stages[index].name, [], proposer.n_trials, before) as progress:
                proposer.on_known = progress.ended
                stopping = self._stopping(self.space.stages[index].name)
                self._choices.runner.run_source(proposer, self._execution.assignment(progress, stopping))
        return [Outcome.of(trial, self.folder.trial(trial.key)) for trial in proposer.trials]

    def _stopping(self, stage: str) -> EarlyStopping | None:
        """Return the early stopping of a stage's trials, if any; replicates and report trials are not stopped."""
        if stage in (REPORT_STAGE, REPLICATE_STAGE) or self.spec.method.scheduler != ASHA:
            return None
        return EarlyStopping(self.folder, stage, self.space.objective, self._interrupt)
