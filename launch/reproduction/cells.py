"""Cells that `launch/reproduce.py` trains for the paper's tables, and what MLflow already has of them."""

import contextlib
import hashlib
import json
import math
import platform
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from dashboards.board.store.records import REPRODUCTION as REPRODUCTION_STAGE
from launch.studies.images import NO_IMAGES, WEIGHTS, Images
from pcl.config.canonical_settings import canonical_settings
from pcl.config.experiments import EXPERIMENTS
from pcl.config.run_config import Plain, RunConfig
from pcl.studies.ledger.study_spec import REPRODUCTION, StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.paper.comparison import CHANGED, Ours, mark_of
from pcl.studies.paper.published import Row, Table, settled
from pcl.studies.session.site import provenance
from pcl.studies.session.strategies import TrialList
from pcl.studies.session.study_session import Study
from pcl.studies.space.search_space import Objective
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.finished_trials import Known, known
from pcl.studies.tracking.tracker import StudyTags, Tracker


@dataclass(frozen=True)
class Setting:
    """The setting of a reproduction: fidelity profile, scale, seeds of every trial, values of `--set` and images."""

    profile: str
    scale: str
    seeds: tuple[int, ...]
    overrides: dict[str, Plain] = field(default_factory=dict)
    images: Images = NO_IMAGES

    def __post_init__(self) -> None:
        object.__setattr__(self, "overrides", canonical_settings(self.overrides))

    @property
    def changed(self) -> str:
        """Return the values of `--set` in words."""
        return " ".join(f"{path}={value}" for path, value in sorted(self.overrides.items()))

    def images_of(self, task: str) -> Images:
        return self.images if task == "images" else NO_IMAGES

    def mark(self, task: str, is_from_scratch: bool = False) -> str:
        """Return the mark of results that differ from the published setup; `is_from_scratch`: it has no pretraining."""
        images = self.images_of(task)
        lacks_weights = task == "images" and not is_from_scratch and not images.values.get(WEIGHTS)
        others = ["not pretrained"] if lacks_weights and images.missing is None else []
        return mark_of(self.scale, images.name, *others, *([CHANGED] if self.overrides else []))


@dataclass
class Cells:
    """The trials of some tables. A row is identified by the names of its table and of itself."""

    trials: dict[str, Trial] = field(default_factory=dict)  # by key; each once, even if several tables have it
    keys: dict[tuple[str, str], str] = field(default_factory=dict)  # key of every row's trial, by table and row
    impossible: dict[tuple[str, str], str] = field(default_factory=dict)  # why a row has no trial, by table and row

    @classmethod
    def of(cls, tables: Iterable[Table], setting: Setting) -> "Cells":
        """Return the cells of some tables.

        Raises:
            ValueError: If `--set` makes a row impossible, or changes a setting that rows of a table vary.
        """
        cells = cls()
        for table in tables:
            if taken := sorted({path for row in table.rows for path in row.settings} & set(setting.overrides)):
                told = f"`--set {taken[0]}` must not set what rows of {table.name} do; leave it out, or the table."
                raise ValueError(told)
            for row in table.rows:
                place = (table.name, row.name)
                try:
                    trial = trial_of(table, row, setting)
                except ValueError as error:
                    if setting.overrides and place in cls.of([table], replace(setting, overrides={})).keys:
                        raise ValueError(f"`--set` is not possible for {row.name!r} of {table.name}: {error}") from None
                    cells.impossible[place] = str(error)
                    continue
                cells.trials.setdefault(trial.key, trial)
                cells.keys[place] = trial.key
        return cells

    def only(self, rows: Sequence[str]) -> "Cells":
        """Return the cells of rows with these names; all if there are no names."""
        keys = {place: key for place, key in self.keys.items() if not rows or place[1] in rows}
        return Cells({key: self.trials[key] for key in keys.values()}, keys)

    def config(self, table: str, row: str) -> dict[str, Plain] | None:
        """Return a row's whole configuration; None if it is not possible."""
        key = self.keys.get((table, row))
        return self.trials[key].config if key else None


def trial_of(table: Table, row: Row, setting: Setting) -> Trial:
    """Return the trial of a row; raise a ValueError if the profile does not have it."""
    images = setting.images_of(row.task)
    config = RunConfig.from_flat({**row.config(setting.profile, setting.scale), **images.values})
    paths = config.paths()
    given = {path: value for path, value in setting.overrides.items() if path in paths}
    if row.is_from_scratch:
        given[WEIGHTS] = ""
    name = f"{table.name.partition(':')[2]}, {row.name}"
    return Trial(config.with_values(given).flat(), setting.seeds, REPRODUCTION_STAGE, {"cell": name}, images.data)


def studies_of(trials: Sequence[Trial], setting: Setting, storage: Storage) -> list[Study[TrialList]]:
    """Return trials as studies, one for each task; studies of the same setting in the storage are continued.

    Small networks come first: a wide one would hold up those that share its worker and take turns with it.
    """
    found = []
    for task, experiment in EXPERIMENTS.items():
        of_task = [trial for trial in trials if trial.config["task_name"] == task]
        of_task.sort(key=lambda trial: int(str(trial.config["encoder.dim"])))
        if not of_task:
            continue
        images = setting.images_of(task)
        objective = Objective(experiment.metrics[0])
        spec = StudySpec(
            f"reproduce_{task}", "", setting.profile, setting.scale, {**setting.overrides, **images.values}, (),
            setting.seeds, images.data, kind=REPRODUCTION,
        )  # fmt: skip
        folder = storage.study(study_name(spec, storage))
        tags = StudyTags(spec.space, spec.scale, spec.profile, objective.metric, spec.data, *provenance())
        title = f"cells of the {'controlled' if task == 'toy' else 'image'} experiment"
        found.append(Study(folder, spec, tags, TrialList(objective, of_task, title)))
    return found


def study_name(spec: StudySpec, storage: Storage) -> str:
    """Return the name of this study in the storage; a new one gets a name that is unique to the storage.

    Two users of an MLflow server would share the runs of one name, so the name depends on the storage, too.
    """
    head = f"{spec.space}-{spec.profile}-{spec.scale}-"
    for path in sorted(storage.path.glob(f"{head}*/study.json")):
        with contextlib.suppress(ValueError):  # an unreadable one is another study
            if not spec.difference(StudySpec.read(storage.study(path.parent.name))):
                return path.parent.name
    place = str(storage) if storage.is_store else [platform.node(), str(storage.path.resolve())]
    seeds = [*spec.tuning_seeds, *spec.report_seeds]
    content = json.dumps([sorted(spec.overrides.items()), seeds, spec.data, spec.fingerprint, place])
    return f"{head}{hashlib.sha256(content.encode()).hexdigest()[:8]}"


def recorded(tracker: Tracker, trials: Iterable[Trial]) -> dict[str, Known]:
    """Return what MLflow has of trials, by key: the seeds of each that have ended."""
    trials = list(trials)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda trial: known(tracker.store, trial), trials))
    return {trial.key: entry for trial, entry in zip(trials, found, strict=True) if entry.trials}


def left_of(cells: Cells, found: Mapping[str, Known], kept: Container[tuple[str, str]] = frozenset()) -> list[Trial]:
    """Return the trials left to run: for every row that is not kept, the seeds that MLflow lacks."""
    needed = {key: cells.trials[key] for place, key in cells.keys.items() if place not in kept}
    missing = {key: found[key].missing if key in found else trial.seeds for key, trial in needed.items()}
    return [replace(cells.trials[key], seeds=seeds) for key, seeds in missing.items() if seeds]


def ours_of(table: Table, cells: Cells, found: Mapping[str, Known], setting: Setting) -> dict[str, Ours]:
    """Return our results for a table's rows from MLflow."""
    ours = {}
    for row in table.rows:
        mark = setting.mark(row.task, row.is_from_scratch)
        if why := cells.impossible.get((table.name, row.name)):
            ours[row.name] = Ours(cause=f"not possible: {why}", mark=mark)
            continue
        key = cells.keys[table.name, row.name]
        entry = found.get(key)
        if entry is None:
            ours[row.name] = Ours(cause="not run", mark=mark)
            continue
        config, metrics = cells.trials[key].config, entry.by_seed
        alive = {seed: of_seed for seed, of_seed in metrics.items() if seed not in entry.failures}
        ended = {seed: settled(metrics[seed], failure, config) for seed, failure in entry.failures.items()}
        done = {seed: of_seed for seed, of_seed in ended.items() if of_seed}
        constant = cells.trials[key].run_config.task.constant_kappa_mae(setting.seeds)
        constant = math.nan if constant is None else constant
        ours[row.name] = Ours(alive, "", mark, len(setting.seeds), entry.failures, done, constant)
    return ours
