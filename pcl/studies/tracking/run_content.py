"""Content of the MLflow run of a study, a trial or a seed. Pure: `pcl.studies.tracking.tracker` writes it."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING

import yaml

from pcl.config.failure import Failure, FailureKind
from pcl.metrics.names import OBJECTIVE, OBJECTIVE_SE
from pcl.studies.ledger.folders import Metrics, Result, Row, Status
from pcl.studies.ledger.provenance import source_hash
from pcl.studies.results.statistics import standard_error
from pcl.studies.space.trial import Trial
from pcl.studies.tracking.database_file import restored
from pcl.studies.tracking.tags import RunState, Tag

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

ENDS = {Status.FINISHED: RunState.FINISHED, Status.FAILED: RunState.FAILED, Status.STOPPED: RunState.KILLED}

# Tags of how a run ended, which a reopened run loses
ENDING_TAGS = frozenset({Tag.CAUSE, Tag.FAILURE_KIND, Tag.FAILURE_DETAIL, Tag.STOPPED_EARLY, Tag.SYNCED})

_UNKNOWN = Failure(FailureKind.ERROR)

Point = tuple[str, float, int, int]  # metric, value, time in milliseconds, step


@dataclass(frozen=True)
class StudyTags:
    """Tags that a study's runs are found and compared by, each named `pcl.NAME`."""

    space: str  # name of the search space
    scale: str  # smoke, quick or paper
    fidelity: str  # paper, reference or exact
    objective: str  # the metric that trials are selected by
    data: str  # fingerprint of the data
    commit: str  # of the code
    lock: str  # hash of requirements.lock
    hardware: str  # of the driver, until a trial records its own
    ablation: str = ""  # name of the ablation, if the study is one
    baseline: str = ""  # key of the trial that its variants are compared with
    source: str = field(default_factory=source_hash)  # of the code as it is, whatever its commit
    torch: str = field(default_factory=lambda: version("torch"))

    def as_tags(self) -> dict[str, str]:
        """Return them by MLflow's names."""
        own = {getattr(Tag, name.upper()): value for name, value in asdict(self).items()}
        own = {tag: value for tag, value in own.items() if value or tag not in (Tag.ABLATION, Tag.BASELINE)}
        return {**own, Tag.SOURCE_COMMIT: self.commit}


@dataclass(frozen=True)
class Ending:
    """The end of a run."""

    state: RunState
    time_ms: int
    tags: dict[str, str] = field(default_factory=dict)  # to be written with it
    metrics: list[Point] = field(default_factory=list)  # to be written with it
    texts: dict[str, str] = field(default_factory=dict)  # artifacts, by name


@dataclass(frozen=True)
class Winner:
    """The result of a study, for its parent run."""

    trial: Trial
    metrics: Mapping[str, float]  # means over its seeds, the objective's as `best/objective` too
    description: str  # the ranked table and the rest of the output


def training_data(name: str) -> "DatasetInput":
    """Return the data that a study trains on, as MLflow's input of a run."""
    from mlflow.entities import Dataset, DatasetInput, InputTag  # noqa: PLC0415  MLflow takes seconds

    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    dataset = Dataset(name=name[:250], digest=digest, source_type="pcl", source=json.dumps({"name": name}))
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])


def params_of(trial: Trial, seeds: Sequence[int]) -> dict[str, str]:
    """Return every setting by its dotted path, and the seeds."""
    values = {path: str(value) for path, value in trial.config.items()}
    return {**values, "seeds": ",".join(map(str, seeds))}


def points_of(rows: Sequence[tuple[Row, Metrics]]) -> list[Point]:
    """Return metrics at the time and batch of their reports, so that sending them again changes nothing."""
    return [(key, value, row.time_ms, row.batch) for row, metrics in rows for key, value in metrics.items()]


def stamp_of(result: Result, rows: Sequence[Row]) -> str:
    """Return the mark of a run that is synced with this result."""
    return f"{result.status.value} {result.time_ms} {len(rows)}"


def trial_ending(trial: Trial, result: Result, rows: Sequence[Row], objective: str) -> Ending:
    """Return the end of a trial's run; a finished one has the objective's mean over seeds and its error."""
    tags = {Tag.HARDWARE: result.hardware, Tag.REUSED_FROM: result.reused_from, Tag.SYNCED: stamp_of(result, rows)}
    texts = {"config.yaml": yaml.safe_dump(trial.config, sort_keys=False)}
    metrics: list[Point] = []
    if result.status is Status.FAILED:
        failure = result.failure or _UNKNOWN
        of_seed = rows[-1].failures.get(trial.seeds[0]) if rows and len(trial.seeds) == 1 else None
        tags |= {**_failure_tags(of_seed or failure), Tag.CAUSE: str(failure)}
        texts["failure.txt"] = f"{failure}\n\n{result.traceback}".rstrip() + "\n"
    elif result.status is Status.STOPPED:
        tags[Tag.STOPPED_EARLY] = result.cause
    elif rows:
        last = rows[-1]
        values = [m[objective] for seed, m in last.by_seed.items() if seed not in last.failures and objective in m]
        if values:
            metrics.append((OBJECTIVE, sum(values) / len(values), last.time_ms, last.batch))
        if len(values) > 1:
            metrics.append((OBJECTIVE_SE, standard_error(values), last.time_ms, last.batch))
    return Ending(ENDS[result.status], result.time_ms, {k: v for k, v in tags.items() if v}, metrics, texts)


def seed_ending(seed: int, result: Result, rows: Sequence[Row], objective: str) -> Ending:
    """Return the end of the run of one of several seeds."""
    failure = rows[-1].failures.get(seed) if rows else None
    if failure or result.status is Status.FAILED:
        return Ending(RunState.FAILED, result.time_ms, _failure_tags(failure or result.failure or _UNKNOWN))
    if result.status is Status.STOPPED:
        return Ending(RunState.KILLED, result.time_ms, {Tag.STOPPED_EARLY: result.cause})
    last = rows[-1] if rows else None
    value = last.by_seed.get(seed, {}).get(objective) if last else None
    metrics = [(OBJECTIVE, value, last.time_ms, last.batch)] if last and value is not None else []
    return Ending(RunState.FINISHED, result.time_ms, {}, metrics)


def _failure_tags(failure: Failure) -> dict[str, str]:
    tags = {Tag.CAUSE: str(failure), Tag.FAILURE_KIND: failure.kind.value, Tag.FAILURE_DETAIL: failure.detail}
    return {tag: text for tag, text in tags.items() if text}


def reported(metrics: Mapping[str, float]) -> Metrics:
    """Return metrics as they were reported, from what MLflow returns."""
    return {key: restored(value) for key, value in metrics.items() if key not in (OBJECTIVE, OBJECTIVE_SE)}
