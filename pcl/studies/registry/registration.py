"""Registration of a champion in MLflow: one logged model, one version, an alias, and links from the study's run.

It is idempotent: a model's digest covers all that makes it, and an existing version with that digest is used again. A
process that dies leaves at most a logged model that is not ready, which the next call deletes.
"""

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pcl.prediction.packed_encoder import PackedEncoder
from pcl.presentation.numbers import number
from pcl.studies.registry.champion import Champion, reference_of
from pcl.studies.registry.model_files import input_example, metadata_of, save_files
from pcl.studies.registry.package import digest_of, requirements_of
from pcl.studies.tracking.store import LONGEST_PARAM, Store
from pcl.studies.tracking.tags import EXPERIMENTS, RunKind, Tag

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel, Run
    from mlflow.entities.model_registry import ModelVersion

_NAME, _ALIAS = re.compile(r"[\w.-]+"), re.compile(r"(?![vV]\d+$)(?!(?i:latest)$)[\w-]+")
_VERSIONS = "mlflow.modelVersions"  # tag of a logged model, by which its page lists them
_LONGEST_NAME, _LONGEST_DESCRIPTION = 200, 5000  # MLflow takes 256 and 5000


@dataclass(frozen=True)
class Registered:
    """A version of a registered model."""

    name: str
    version: int
    alias: str
    seed: int  # of the encoder
    is_new: bool  # whether this call made it
    champion: Champion  # what it was made from
    notes: tuple[str, ...] = ()  # sentences on what it lacks

    @property
    def uri(self) -> str:
        """Return the address that `mlflow.pyfunc.load_model` and `mlflow models serve -m` take."""
        return f"models:/{self.name}@{self.alias}"


def check_names(name: str, alias: str) -> None:
    """Raise a ValueError unless MLflow accepts a model's name and its alias."""
    if not _NAME.fullmatch(name) or not name.strip(".") or len(name) > _LONGEST_NAME:
        raise ValueError(f"A model's name must be letters, digits, '.', '-' and '_', but got {name!r}.")
    if not _ALIAS.fullmatch(alias) or len(alias) > _LONGEST_NAME:
        raise ValueError(
            f"An alias must be letters, digits, '-' and '_', neither 'latest' nor such as v1, but got {alias!r}."
        )


def register(champion: Champion, store: Store, name: str, alias: str, seed: int | None = None) -> Registered:
    """Register a champion, unless a version of the same content exists, and set the alias.

    Raises:
        ValueError: If a name is not possible, MLflow has no run of the study, or the encoder cannot be used.
        StoreError: If MLflow does not do what it is asked.
    """
    check_names(name, alias)
    study = _study_run(champion, store)
    model, notes = _model(champion, seed)
    requirements = requirements_of(model)
    tags = {**_tags(champion, model), Tag.DIGEST: digest_of(model, requirements, champion.taken.trial.data)}
    found = _version(store, name, tags[Tag.DIGEST])
    version = found
    if version is None:
        logged, lacks = _logged_model(store, study, champion, model, requirements, tags)
        notes += lacks
        version = _new_version(store, name, logged, tags, _description(champion, model))
    store.call(lambda client: client.set_registered_model_alias(name, alias, str(version.version)))
    link = {Tag.MODEL: f"{name}/{version.version}", Tag.MODEL_TRIAL: champion.winner}
    store.log(study.info.run_id, tags=link)
    return Registered(name, int(version.version), alias, model.seed, found is None, champion, notes)


def _study_run(champion: Champion, store: Store) -> "Run":
    tags = {Tag.STUDY: champion.study, Tag.KIND: RunKind.STUDY}
    found = store.find(store.experiments(EXPERIMENTS), tags, most=1)
    if not found:
        raise ValueError(
            f"MLflow {store.shown_uri} has no run of the study {champion.study!r}: name the one that it is recorded in."
        )
    return found[0]


def _model(champion: Champion, seed: int | None) -> tuple[PackedEncoder, tuple[str, ...]]:
    """Return the encoder with its reference set, after checking that its numbers are finite."""
    from pcl.studies.serving.loader import ServedEncoder  # noqa: PLC0415  which imports MLflow

    model = champion.packed(seed)
    answer = ServedEncoder(model).predict(input_example(model))
    if not np.isfinite([[*mu, kappa] for mu, kappa in zip(answer["mu"], answer["kappa"], strict=True)]).all():
        raise ValueError(f"The encoder of seed {model.seed} returns NaN or infinity: it has diverged.")
    try:
        return replace(model, reference=reference_of(model, champion.taken.trial.data)), ()
    except ValueError as error:
        return model, (f"no neighbours: {str(error).rstrip('.')}",)


def _tags(champion: Champion, model: PackedEncoder) -> dict[str, str]:
    tags = {
        Tag.STUDY: champion.study, Tag.SPACE: champion.space, Tag.TRIAL: champion.key, Tag.SEED: str(model.seed),
        Tag.OBJECTIVE: champion.objective, Tag.DATA: champion.taken.trial.data,
        Tag.SCALE: model.config.scale.value, Tag.FIDELITY: model.config.profile.value,
    }  # fmt: skip
    return {**tags, Tag.MATHS: str(champion.numerics)} if champion.numerics else tags


def _version(store: Store, name: str, digest: str) -> "ModelVersion | None":
    """Return the first version of a model that has this digest."""
    asked = f"name = '{name}' and tags.`{Tag.DIGEST}` = '{digest}'"
    found = store.call(lambda client: client.search_model_versions(asked))
    return min(found, key=lambda version: int(version.version), default=None)


def _logged_model(
    store: Store, study: "Run", champion: Champion, model: PackedEncoder, requirements: list[str],
    tags: Mapping[str, str],
) -> tuple["LoggedModel", tuple[str, ...]]:  # fmt: skip
    """Find or write the logged model of a digest; return it with sentences on what it lacks."""
    from mlflow.entities import LoggedModelOutput, LoggedModelStatus  # noqa: PLC0415  MLflow takes seconds

    experiment, run = study.info.experiment_id, study.info.run_id
    asked = f"tags.`{Tag.STUDY}` = '{champion.study}'"
    found = store.call(lambda client: client.search_logged_models([experiment], asked))
    for logged in found:
        if logged.status == LoggedModelStatus.READY and logged.tags.get(Tag.DIGEST) == tags[Tag.DIGEST]:
            return logged, ()
    for logged in (one for one in found if one.status != LoggedModelStatus.READY):
        store.call(lambda client, gone=logged.model_id: client.delete_logged_model(gone))  # type: ignore[misc]
    params = {path: str(value)[:LONGEST_PARAM] for path, value in model.config.flat().items()}
    name = re.sub(r"[^\w-]", "_", champion.space)
    made = store.call(lambda client: client.create_logged_model(experiment, name, run, dict(tags), params, "encoder"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        lacks = save_files(path, model, requirements, metadata_of(champion, model), made)
        store.call(lambda client: client.log_model_artifacts(made.model_id, str(path)))
    store.call(lambda client: client.log_outputs(run, [LoggedModelOutput(made.model_id, step=0)]))
    store.call(lambda client: client.finalize_logged_model(made.model_id, LoggedModelStatus.READY))
    return made, lacks


def _new_version(
    store: Store, name: str, logged: "LoggedModel", tags: Mapping[str, str], description: str
) -> "ModelVersion":
    """Make a version of a logged model; create the registered model if there is none."""
    if not store.call(lambda client: client.search_registered_models(f"name = '{name}'")):
        store.call(lambda client: client.create_registered_model(name))
    # By its place: MLflow looks up models:/ID in the store of the process, not in that of the client.
    place, run, model_id = logged.artifact_location, logged.source_run_id, logged.model_id
    version = store.call(
        lambda client: client.create_model_version(
            name, place, run, dict(tags), description=description, model_id=model_id
        )
    )
    known = json.loads(logged.tags.get(_VERSIONS, "[]"))
    versions = json.dumps([*known, {"name": name, "version": version.version}])
    store.call(lambda client: client.set_logged_model_tags(model_id, {_VERSIONS: versions}))
    return version


def _description(champion: Champion, model: PackedEncoder) -> str:
    """Return a version's description in Markdown, with a table of its metrics."""
    metadata = metadata_of(champion, model)
    seeds = ", ".join(map(str, champion.taken.trial.seeds))
    which = "report seeds" if champion.is_reported else "seeds that selected it"
    rows = [
        f"| `{name}` | {number(found.mean)} | {_interval(found.low, found.high)} | {found.n} |"
        for name, found in champion.metrics.items()
    ]
    return "\n".join([
        f"Winner of the study {champion.study}, seed {model.seed}. Input: {metadata['inputs']}. Angles are in radians.",
        "", f"Metrics over the {which} ({seeds}):", "",
        "| metric | mean | 95% interval | seeds |", "|---|---|---|---|", *rows,
    ])[:_LONGEST_DESCRIPTION]  # fmt: skip


def _interval(low: float, high: float) -> str:
    return f"{number(low)} to {number(high)}" if low <= high else "one seed"
