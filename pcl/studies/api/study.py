"""A study for programs to read: trials, seeds and curves as tables, and the best trial's encoder."""

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from pcl.config.run_config import Plain, RunConfig
from pcl.storage.object_stores import is_address
from pcl.studies.api.loaded_encoder import LoadedEncoder, load_encoder
from pcl.studies.ledger.folders import StudyFolder, TrialFolder
from pcl.studies.ledger.opened_study import opened, read_objective, resuming
from pcl.studies.ledger.study_spec import ABLATION, MADE_IN_PYTHON, SEARCH, StudySpec
from pcl.studies.ledger.study_storage import Storage, study_at
from pcl.studies.ledger.typed_json import parsed, table
from pcl.studies.registry.champion import Champion
from pcl.studies.registry.registration import Registered, check_names, register
from pcl.studies.results.pareto import with_objectives
from pcl.studies.results.selection import Outcome, ranked, winner
from pcl.studies.results.trained_winner import checkpoint_of, trained_winner
from pcl.studies.space.ablation import ablation_names, load_ablation
from pcl.studies.space.search_space import Objective, load_space, space_names
from pcl.studies.space.trial import REPLICATE_STAGE, REPORT_STAGE
from pcl.studies.tracking.store import Store, tracking_uri

_UNFINISHED = "unfinished"  # status of a trial without a result
_SUMMARY = "summary.json"


@dataclass(frozen=True)
class BestTrial:
    """The winner of a study."""

    outcome: Outcome  # what was trained and what it reached
    folder: TrialFolder
    study: StudyFolder

    @property
    def key(self) -> str:
        return self.folder.key

    @property
    def varied(self) -> dict[str, Plain]:
        """Return the settings that the study varied, by dotted path or axis."""
        return self.outcome.trial.varied

    @property
    def config(self) -> RunConfig:
        """Return the configuration; `Run(config, seeds)` trains it again."""
        return self.outcome.trial.run_config

    def encoder(self, seed: int | None = None, device: str = "cpu") -> LoadedEncoder:
        """Return the trained encoder.

        Args:
            seed: Seed of the trial; by default the first that has not failed.
            device: Where to compute.

        Raises:
            ValueError: If there is no checkpoint, or none of this seed.
        """
        return load_encoder(checkpoint_of(self.study, self.folder), seed, device)


class Study:
    """A study that may be running, interrupted or over. Tables are read once; call `open_study` again to refresh.

    Attributes:
        folder: Its files.
        spec: Its specification.

    Raises:
        ValueError: If there is no study in the folder.
    """

    def __init__(self, folder: StudyFolder) -> None:
        self.spec = StudySpec.read(folder)
        folder.pull()
        self.folder = folder

    def __repr__(self) -> str:
        return f"Study({str(self.folder.path)!r}: {self.spec.kind} of {self.spec.space}, {len(self._outcomes)} trials)"

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def path(self) -> Path:
        return self.folder.path

    @cached_property
    def objective(self) -> Objective | None:
        """Return the metric that ranks its trials; None if neither its files nor one of our spaces say.

        A user's own space is code, and reading a study does not run it.
        """
        with suppress(KeyError, TypeError, ValueError):  # there is no summary yet, or it is damaged
            return Objective.of(self._summary["objective"])
        if (recorded := read_objective(self.folder)) is not None:
            return recorded
        with suppress(ValueError):  # older studies have not recorded it
            if self.spec.kind == ABLATION and self.spec.space in ablation_names():
                return load_ablation(self.spec.space).objective
            if self.spec.kind == SEARCH and self.spec.space in space_names():
                return with_objectives(load_space(self.spec.space), self.spec.objectives)[0].objective
        return None

    @property
    def best(self) -> BestTrial:
        """Return the winner, or the best so far if a search has none yet.

        Raises:
            ValueError: If no trial has finished, or the objective is not known.
        """
        if self.objective is None:
            raise ValueError(f"The study {self.name!r} does not say which metric ranks its trials.")
        selected = (self._summary.get("best") or {}).get("key")
        outcomes = [outcome for _, outcome in self._ranked if selected in (None, outcome.trial.key)]
        if selected is None:  # report seeds never select, and a later stage has found something better
            searched = [o for o in outcomes if o.trial.stage not in (REPORT_STAGE, REPLICATE_STAGE)]
            stages = list(dict.fromkeys(o.trial.stage for o in searched if o.is_finished))
            outcomes = [o for o in searched if o.trial.stage in stages[-1:]]
        best = winner(outcomes, self.objective)
        if best is None:
            raise ValueError(f"The study {self.name!r} has no winner: no trial finished with a finite objective.")
        return BestTrial(best, self.folder.trial(best.trial.key), self.folder)

    @property
    def champion(self) -> Champion:
        """Return the training of the winner that becomes a model: on the report seeds where there is one, else its own.

        Raises:
            ValueError: If there is no winner; the best so far of a search is not one.
        """
        if self.spec.kind == SEARCH and not self._summary.get("best"):
            raise ValueError(
                f"The study {self.name!r} has no winner yet; `{resuming(self.folder, self.spec)}` continues it."
            )
        best = self.best
        folder, checkpoint = trained_winner(self.folder, best.key)
        taken = best.outcome if folder.key == best.key else Outcome.of(folder.trial(), folder)
        space = Path(self.spec.space.removeprefix(MADE_IN_PYTHON)).stem
        assert self.objective is not None  # `best` has checked it
        return Champion(self.name, space, self.objective.metric, best.key, taken, folder.key, checkpoint)

    def register(
        self, name: str | None = None, alias: str = "champion", seed: int | None = None, tracking: str | None = None
    ) -> Registered:
        """Register the winner as a model in MLflow; if nothing has changed since the last call, only set the alias.

        Args:
            name: Name of the model; by default the space's.
            alias: Alias of the version.
            seed: Seed to register; by default the first that has not failed.
            tracking: Address of MLflow; None for the environment's, else the database in the storage.

        Raises:
            ValueError: If there is no winner, no checkpoint or no run of the study, a name is not possible, or a
                process is at work on the study.
        """
        check_names(name or "model", alias)
        store = Store(tracking_uri(tracking, self.path.parent))
        store.check()
        with opened(self.folder, self.spec, is_resumed=False):
            champion = Study(self.folder).champion  # read again: nobody else works on it now
            return register(champion, store, name or champion.space, alias, seed)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Return a row for each trial, the best of each stage first.

        Columns: trial (its key), stage, rank in the stage, status, failure, objective, a column for every axis that was
        varied, and the mean of every metric over the seeds that have not failed.
        """
        metric = self.objective.metric if self.objective else ""
        rows = []
        for rank, outcome in self._ranked:
            head = {"trial": outcome.trial.key, "stage": outcome.trial.stage, "rank": rank}
            ending = {"status": _status(outcome), "failure": outcome.cause, "objective": outcome.mean(metric)}
            metrics = dict.fromkeys(name for metrics in outcome.by_seed.values() for name in metrics)
            means = {name: outcome.mean(name) for name in metrics}
            rows.append({**head, **ending, **outcome.trial.varied, "seconds": outcome.seconds, **means})
        return _frame(rows, ("trial", "stage", "rank", "status", "failure", "objective", *self._axes, "seconds"))

    @cached_property
    def seeds(self) -> pd.DataFrame:
        """Return a row for each trial and seed: its last metrics, and why it failed."""
        rows = []
        for _, outcome in self._ranked:
            for seed in outcome.trial.seeds:
                head = {"trial": outcome.trial.key, "stage": outcome.trial.stage, "seed": seed}
                of_trial = outcome.result.cause if outcome.result else ""
                cause = str(outcome.failures[seed]) if seed in outcome.failures else of_trial
                status = "failed" if seed in outcome.failures else _status(outcome)
                values = {**outcome.trial.varied, **outcome.by_seed.get(seed, {})}
                rows.append({**head, "status": status, "failure": cause, **values})
        return _frame(rows, ("trial", "stage", "seed", "status", "failure", *self._axes))

    @cached_property
    def curves(self) -> pd.DataFrame:
        """Return a row for each trial, seed and report: the metrics at that batch."""
        rows = [
            {"trial": outcome.trial.key, "stage": outcome.trial.stage, "seed": seed, "batch": row.batch, **metrics}
            for _, outcome in self._ranked
            for row in self.folder.trial(outcome.trial.key).rows()
            for seed, metrics in row.by_seed.items()
        ]
        return _frame(rows, ("trial", "stage", "seed", "batch"))

    @cached_property
    def _summary(self) -> dict[str, Any]:
        """Return summary.json, which a search writes at its end; empty where there is none."""
        with suppress(OSError, ValueError):
            return parsed(self.path / _SUMMARY, lambda content: dict(table(content)))
        return {}

    @cached_property
    def _outcomes(self) -> list[Outcome]:
        return [Outcome.of(folder.trial(), folder) for folder in self.folder.trials()]

    @cached_property
    def _ranked(self) -> list[tuple[float, Outcome]]:
        """Return rank and outcome of every trial, stage after stage in the order in which they ended first."""
        stages: dict[str, list[Outcome]] = {}
        for outcome in sorted(
            self._outcomes, key=lambda outcome: outcome.result.time_ms if outcome.result else math.inf
        ):
            stages.setdefault(outcome.trial.stage, []).append(outcome)
        return [entry for outcomes in stages.values() for entry in _ranks(outcomes, self.objective)]

    @property
    def _axes(self) -> list[str]:
        return list(dict.fromkeys(axis for outcome in self._outcomes for axis in outcome.trial.varied))


def open_study(path_or_name: str | Path, storage: str | Path = "runs") -> Study:
    """Open a study to read it.

    Args:
        path_or_name: Its folder, its address in a store, or its name in the storage.
        storage: Folder or store of studies.

    Raises:
        ValueError: If there is no such study.
    """
    text = str(path_or_name)
    if is_address(text):
        return Study(study_at(text))
    if isinstance(path_or_name, Path) or "/" in text:
        return Study(StudyFolder(Path(text)))
    found = Storage.of(str(storage))
    found.check_readable()
    return Study(found.study(text))


def _ranks(outcomes: Sequence[Outcome], objective: Objective | None) -> Iterator[tuple[float, Outcome]]:
    """Yield outcomes of a stage, best first, each with its rank; NaN for those that have none."""
    for place, outcome in enumerate(ranked(outcomes, objective) if objective else outcomes, start=1):
        yield (place if objective and outcome.counts(objective.metric) else math.nan), outcome


def _status(outcome: Outcome) -> str:
    return outcome.result.status.value if outcome.result else _UNFINISHED


def _frame(rows: Sequence[dict[str, Any]], first: Sequence[str]) -> pd.DataFrame:
    """Return a table with these columns first, even without rows, and the others in their order."""
    names = dict.fromkeys([*first, *(name for row in rows for name in row)])
    return pd.DataFrame(list(rows), columns=list(names))
