"""Invariants of a study's MLflow runs: one for the study, each trial and each seed, as the folders have them."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pcl.metrics.names import OBJECTIVE, OBJECTIVE_SE
from pcl.studies.ledger.folders import Metrics, Row, StudyFolder, TrialFolder
from pcl.studies.tracking import run_content as content
from pcl.studies.tracking.store import LONGEST_PARAM, Store
from pcl.studies.tracking.tags import EXPERIMENTS, RunKind, RunState, Tag
from pcl.studies.verification.problem import Problem, Remedy

if TYPE_CHECKING:
    from mlflow.entities import Run

_Identity = tuple[str, str]  # trial and seed; the study's run has neither, a trial's run has no seed


def tracking_problems(store: Store, folder: StudyFolder, trials: Sequence[TrialFolder]) -> Iterator[Problem]:
    """Yield what is wrong with a study's runs, while nobody works on it.

    Args:
        store: MLflow.
        folder: The study.
        trials: Its trials whose folders can be read.
    """
    runs = _runs_of(store, folder.name, {trial.key for trial in trials})
    parents = runs.pop(("", ""), [])
    if not parents:
        yield Problem(f"MLflow, study {folder.name}", "is not recorded", Remedy.RESUME)
        return
    parent = parents[0].info
    if parent.status == RunState.RUNNING:
        yield Problem(_named(parents[0]), "is RUNNING, but nobody works on it", Remedy.RESUME)
    for doubled in [parents, *runs.values()]:
        for run in doubled[1:]:
            yield Problem(_named(run), "is a second run of the same trial or seed", Remedy.RESUME)
    first = {identity: found[0] for identity, found in runs.items()}
    for (key, _), run in first.items():
        if not folder.trial(key).path.exists():
            yield Problem(_named(run), "is of a trial that has no folder", Remedy.ORPHAN)
    for trial in trials:
        yield from _TrialRuns(store, parent.run_id, trial, first).problems()


def _runs_of(store: Store, study: str, keys: set[str]) -> "dict[_Identity, list[Run]]":
    """Return a study's runs, oldest first; if several experiments have its name, those of the one with these trials."""
    found = store.find(store.experiments(EXPERIMENTS), {Tag.STUDY: study})
    shared: dict[str, int] = defaultdict(int)
    for run in found:
        shared[run.info.experiment_id] += run.data.tags.get(Tag.TRIAL, "") in keys
    runs: dict[_Identity, list[Run]] = defaultdict(list)
    for run in found:
        if run.info.experiment_id == max(shared, key=shared.__getitem__):
            tags = run.data.tags
            seed = tags.get(Tag.SEED, "") if tags.get(Tag.KIND) == RunKind.SEED else ""
            runs[tags.get(Tag.TRIAL, ""), seed].append(run)
    return runs


@dataclass(frozen=True)
class _TrialRuns:
    """The runs of a trial and its seeds.

    Attributes:
        store: MLflow.
        parent: Identifier of the study's run.
        folder: The trial.
        runs: Runs of the whole study.
    """

    store: Store
    parent: str
    folder: TrialFolder
    runs: "Mapping[_Identity, Run]"

    def problems(self) -> Iterator[Problem]:
        trial, rows, result = self.folder.trial(), self.folder.rows(), self.folder.result()
        run = self.runs.get((self.folder.key, ""))
        if run is None:
            if rows or result:
                yield Problem(f"MLflow, trial {self.folder.key}", "is not recorded", Remedy.RESUME)
            return
        state = content.ENDS[result.status] if result else RunState.KILLED
        if run.info.status != state or (result and run.data.tags.get(Tag.SYNCED) != content.stamp_of(result, rows)):
            yield Problem(_named(run), f"is {run.info.status}, but the trial's folder says otherwise", Remedy.RESUME)
            return
        found = self._differences(run, self.parent, [(row, row.metrics) for row in rows], trial.seeds)
        yield from (Problem(_named(run), what, remedy) for what, remedy in found)
        for seed in trial.seeds if len(trial.seeds) > 1 else ():
            of_seed = self.runs.get((self.folder.key, str(seed)))
            points = [(row, row.by_seed[seed]) for row in rows if seed in row.by_seed]
            if of_seed is None:
                yield Problem(_named(run), f"has no run of seed {seed}", Remedy.RERECORD)
            elif result and of_seed.info.status != content.seed_ending(seed, result, rows, "").state:
                yield Problem(_named(run), f"has a run of seed {seed} that is {of_seed.info.status}", Remedy.RERECORD)
            else:
                found = self._differences(of_seed, run.info.run_id, points, (seed,))
                yield from (Problem(_named(run), f"seed {seed}: its run {what}", remedy) for what, remedy in found)

    def _differences(
        self, run: "Run", parent: str, points: Sequence[tuple[Row, Metrics]], seeds: Sequence[int]
    ) -> Iterator[tuple[str, Remedy]]:
        """Yield how a run marked as synced differs from the folder: it has each report once, and the parameters."""
        has_ended = self.folder.result() is not None
        if run.data.tags.get(Tag.PARENT) != parent:
            yield "has another parent than the run it belongs to", Remedy.RERECORD
        wanted = {path: value[:LONGEST_PARAM] for path, value in content.params_of(self.folder.trial(), seeds).items()}
        if has_ended and run.data.params != wanted:
            yield "has other parameters than its trial", Remedy.RERECORD
        expected = {(key, time_ms, batch): value for key, value, time_ms, batch in content.points_of(points)}
        there = self.store.history(run.info.run_id)
        found = {point[:3]: point[3] for point in there if point[0] not in (OBJECTIVE, OBJECTIVE_SE)}
        if len({point[:3] for point in there}) < len(there) or set(found) - set(expected):
            yield "has reports that its folder lacks", Remedy.RERECORD if has_ended else Remedy.RESUME
        elif has_ended and set(expected) - set(found):
            yield "lacks reports that its folder has", Remedy.RERECORD
        elif any(not _is_same(value, expected[point]) for point, value in found.items()):
            yield "has other values than its folder", Remedy.RERECORD


def _is_same(recorded: float, value: float) -> bool:
    (found,) = content.reported({"": recorded}).values()
    return found == value or (math.isnan(found) and math.isnan(value))


def _named(run: "Run") -> str:
    return f"MLflow, run {run.info.run_id} ({run.info.run_name})"
