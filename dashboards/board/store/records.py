"""Studies, trials and seeds, as MLflow has them recorded."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from pcl.metrics.names import BEST_OBJECTIVE, CONSTANT_KAPPA_MAE, OBJECTIVE, OBJECTIVE_SE, TRAIN_S, larger_is_better
from pcl.studies.tracking.database_file import Database, Row, restored
from pcl.studies.tracking.tags import EXPERIMENTS, Failure, RunKind, RunState, Tag, failure_of

REPORT = "report"  # the stage of the report seeds, which select nothing
REPLICATE = "replicate"  # stage of trials that run again on more seeds, where the winner was not clear
REPRODUCTION = "reproduction"  # stage of `launch/reproduce.py` on the report seeds

_TRIAL_TAGS = (
    Tag.KIND, Tag.TRIAL, Tag.STAGE, Tag.SEED, Tag.CAUSE, Tag.FAILURE_KIND, Tag.FAILURE_DETAIL, Tag.HARDWARE,
    Tag.REUSED_FROM, Tag.PARENT,
)  # fmt: skip
# Tags that an overview needs; of a study's own run, all are read.
_TAGS = (
    f"select run_uuid, key, value from tags where key in {_TRIAL_TAGS!r} "
    f"or run_uuid in (select run_uuid from tags where key = '{Tag.KIND}' and value = '{RunKind.STUDY}')"
)
_SUMMARY_METRICS = (OBJECTIVE, OBJECTIVE_SE, BEST_OBJECTIVE, CONSTANT_KAPPA_MAE, TRAIN_S)


@dataclass
class Run:
    """A run of MLflow."""

    id: str
    experiment: str
    name: str  # for people
    status: RunState
    start_ms: int  # when it began, in milliseconds since 1970
    end_ms: int  # when it ended; 0 before
    tags: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)  # the last values
    params: dict[str, str] = field(default_factory=dict)  # settings by their dotted path; empty in an overview
    last_ms: int = 0  # when it last reported

    @property
    def failure(self) -> Failure | None:
        """Return why it failed, if it has."""
        return failure_of(self.tags)

    @property
    def cause(self) -> str:
        """Return why it failed, in a sentence; empty if it has not."""
        return str(self.failure or "")


@dataclass
class Trial:
    """A trial's run, and those of its seeds where it has several."""

    run: Run
    seeds: list[Run] = field(default_factory=list)

    @property
    def stage(self) -> str:
        """Stage of the search, `REPLICATE` or `REPORT`."""
        return self.run.tags.get(Tag.STAGE, "")

    @property
    def is_searched(self) -> bool:
        """True if a stage of the search tried it; the report and replicates run its configurations again."""
        return self.stage not in (REPORT, REPLICATE)

    @property
    def objective(self) -> float:
        """Mean over the seeds that have not failed; NaN where there is none, or one is undefined."""
        return self.run.metrics.get(OBJECTIVE, math.nan)

    @property
    def has_rank(self) -> bool:
        """True if it finished with a finite objective."""
        return self.run.status is RunState.FINISHED and math.isfinite(self.objective)

    @property
    def error(self) -> float:
        """Standard error of `objective`; NaN for a single seed."""
        return self.run.metrics.get(OBJECTIVE_SE, math.nan)

    @property
    def lost(self) -> list[Run]:
        """Seeds that failed."""
        return [seed for seed in self.seeds if seed.cause]

    @property
    def is_reused(self) -> bool:
        """True if its result is another study's."""
        return bool(self.run.tags.get(Tag.REUSED_FROM))

    @property
    def seconds(self) -> float:
        """Seconds that this study spent training."""
        spent = self.run.metrics.get(TRAIN_S, 0.0)
        return spent if math.isfinite(spent) and not self.is_reused else 0.0

    def by_seed(self, metric: str) -> dict[str, float]:
        """The last finite values of the seeds that have not failed."""
        return {seed: value for seed, value in self.recorded(metric).items() if math.isfinite(value)}

    def recorded(self, metric: str) -> dict[str, float]:
        """The last values of the seeds that have not failed, including undefined ones."""
        runs = [seed for seed in self.seeds if not seed.cause] if self.seeds else [self.run]
        named = {run.tags.get(Tag.SEED, ""): run.metrics for run in runs}
        return {seed: metrics[metric] for seed, metrics in named.items() if seed and metric in metrics}


@dataclass
class Study:
    """A study's run and its trials, in the order in which they began."""

    run: Run
    trials: list[Trial] = field(default_factory=list)

    @property
    def objective(self) -> str:
        """The metric that trials are selected by."""
        return self.run.tags.get(Tag.OBJECTIVE, OBJECTIVE)

    @property
    def selects(self) -> bool:
        """True if it searches for a winner; ablations and reproductions run on report seeds and choose nothing."""
        return not self.run.tags.get(Tag.ABLATION) and not self.is_reproduction

    @property
    def is_reproduction(self) -> bool:
        """True if `launch/reproduce.py` made it."""
        return self.run.tags.get(Tag.SPACE, "").startswith("reproduce_")

    @property
    def is_running(self) -> bool:
        """True if its driver has not said that it has ended."""
        return self.run.status is RunState.RUNNING

    @cached_property
    def last_ms(self) -> int:
        """Time of its last report."""
        return max([self.run.start_ms, self.run.last_ms, *(t.run.last_ms for t in self.trials)])

    @property
    def searched(self) -> list[Trial]:
        """Trials of the search itself, in the order in which they began."""
        return [trial for trial in self.trials if trial.is_searched]

    @cached_property
    def ranked(self) -> list[Trial]:
        """Trials of the tuning seeds, best first; see `in_order`."""
        return self.in_order(self.searched)

    def in_order(self, trials: Iterable[Trial]) -> list[Trial]:
        """Return trials, best first: whole ones, those that lost seeds, then those without a value."""
        sign = -1.0 if larger_is_better(self.objective) is not False else 1.0
        return sorted(trials, key=lambda t: (len(t.lost) > 0, sign * t.objective) if t.has_rank else (2, 0.0))

    @cached_property
    def winner(self) -> Trial | None:
        """The chosen trial, or the best so far; None for a reproduction, whose cells do not compete."""
        if self.is_reproduction:
            return None
        finished = [trial for trial in self.ranked if trial.has_rank]
        winner, best = self.run.tags.get(Tag.WINNER), self.run.metrics.get(BEST_OBJECTIVE)
        chosen = [t for t in finished if t.run.id == winner] or [t for t in finished if t.objective == best]
        return next(iter(chosen or finished), None)

    @property
    def cells(self) -> list[Trial]:
        """Trials of a reproduction: of the paper's cells, then of the grids, in the order in which they began."""
        return sorted(self.searched, key=lambda trial: trial.stage != REPRODUCTION)

    @property
    def reports(self) -> list[Trial]:
        """Trials of the report seeds."""
        return [trial for trial in self.trials if trial.stage == REPORT]

    @property
    def replicates(self) -> list[Trial]:
        """Trials that ran again on more seeds."""
        return [trial for trial in self.trials if trial.stage == REPLICATE]

    def seconds(self, *, of_gpu: bool) -> float:
        """Return the sum of trials' training times, on GPUs or CPUs; trials that share a device count in full."""
        return sum(t.seconds for t in self.trials if t.run.tags.get(Tag.HARDWARE, "").startswith("CPU") != of_gpu)


def all_studies(database: Database) -> list[Study]:
    """Return every study with what an overview shows, the latest first."""
    runs = _runs(database)
    for run_id, key, value in database.rows(_TAGS):
        if run_id in runs:
            runs[run_id].tags[key] = value or ""
    _fill_metrics(runs, database.rows(
        f"select run_uuid, key, value, is_nan, timestamp from latest_metrics where key in {_SUMMARY_METRICS!r}"
    ))  # fmt: skip
    return sorted(_grouped(runs.values())[0], key=lambda study: -study.run.start_ms)


def one_study(database: Database, run_id: str, metrics: Sequence[str] = ()) -> Study | None:
    """Return a study with all that is recorded of it; given `metrics`, only these, the objective and the overview's."""
    members = database.rows(
        "select mine.run_uuid from tags theirs join tags mine on mine.key = theirs.key and mine.value = theirs.value "
        "where theirs.key = ? and theirs.run_uuid = ?",
        Tag.STUDY,
        run_id,
    )
    if metrics:
        objective = database.rows("select value from tags where key = ? and run_uuid = ?", Tag.OBJECTIVE, run_id)
        metrics = [*metrics, *_SUMMARY_METRICS, *(value for (value,) in objective)]
    found = _whole(database, [member for (member,) in members], metrics)
    return next((study for study in _grouped(found)[0] if study.run.id == run_id), None)


def trials_on(database: Database, seeds: Iterable[int]) -> list[Trial]:
    """Return all studies' trials that were trained on some of these seeds, with all that is recorded of them."""
    asked = {str(seed) for seed in seeds}
    rows = database.rows("select run_uuid, value from params where key = 'seeds'")
    found = _whole(database, [run_id for run_id, trained in rows if asked & set(trained.split(","))])
    return _grouped(found)[1]


def differing(params: Sequence[Mapping[str, str]]) -> set[str]:
    """Return the paths at which some have other values than the first, or none."""
    found: set[str] = set()
    for other in params[1:]:
        if other != params[0]:
            found.update(path for path, _ in other.items() ^ params[0].items())
    return found


def varied_params(trials: Iterable[Trial]) -> list[tuple[str, ...]]:
    """Return the paths of settings in which trials differ; those that change together are in one group."""
    of_trials = [trial.run.params for trial in trials if trial.run.params]
    paths = differing(of_trials) - {"seeds"}
    groups: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for path in sorted(paths):
        numbers: dict[str | None, int] = {}
        groups[tuple(numbers.setdefault(params.get(path), len(numbers)) for params in of_trials)].append(path)
    return [tuple(group) for group in groups.values()]


def _runs(database: Database, condition: str = "", *values: object) -> dict[str, Run]:
    rows = database.rows(
        "select r.run_uuid, r.experiment_id, r.name, r.status, r.start_time, r.end_time from runs r "
        "join experiments e on e.experiment_id = r.experiment_id "
        f"where r.lifecycle_stage = 'active' and e.lifecycle_stage = 'active' and e.name like '{EXPERIMENTS}%' "
        f"{condition} order by r.start_time, r.run_uuid",
        *values,
    )
    return {
        run_id: Run(run_id, str(experiment), name or run_id, RunState(status), start or 0, end or 0)
        for run_id, experiment, name, status, start, end in rows
    }


def _whole(database: Database, identifiers: Sequence[str], metrics: Sequence[str] = ()) -> list[Run]:
    """Return runs with all that is recorded of them; given `metrics`, only these metrics."""
    chosen, asked = "run_uuid in (select value from json_each(?))", json.dumps(identifiers)
    runs = _runs(database, f"and r.{chosen}", asked)
    values = f"select run_uuid, key, value, is_nan, timestamp from latest_metrics where {chosen}"
    if metrics:
        values += " and key in (select value from json_each(?))"
    _fill_metrics(runs, database.rows(values, asked, *([json.dumps(metrics)] if metrics else [])))
    for table in ("tags", "params"):
        # A row for each run: to read one for each entry takes twice as long.
        entries = f"select run_uuid, json_group_object(key, ifnull(value, '')) from {table} where {chosen}"
        for run_id, content in database.rows(f"{entries} group by run_uuid", asked):
            if run_id in runs:
                setattr(runs[run_id], table, json.loads(content))
    return list(runs.values())


def _fill_metrics(runs: Mapping[str, Run], rows: Iterable[Row]) -> None:
    for run_id, key, value, is_nan, time_ms in rows:
        if run_id in runs:
            run = runs[run_id]
            run.metrics[key] = math.nan if is_nan else restored(value)
            run.last_ms = max(run.last_ms, time_ms or 0)


def _grouped(runs: Iterable[Run]) -> tuple[list[Study], list[Trial]]:
    """Return studies and trials with their children, found by the parent that each run names."""
    by_kind: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        by_kind[run.tags.get(Tag.KIND, "")].append(run)
    studies = {run.id: Study(run) for run in by_kind[RunKind.STUDY]}
    trials = {run.id: Trial(run) for run in by_kind[RunKind.TRIAL]}
    for seed in by_kind[RunKind.SEED]:
        if (trial := trials.get(seed.tags.get(Tag.PARENT, ""))) is not None:
            trial.seeds.append(seed)
    for trial in trials.values():
        if (study := studies.get(trial.run.tags.get(Tag.PARENT, ""))) is not None:
            study.trials.append(trial)
    return list(studies.values()), list(trials.values())
