"""The study that `launch/grid.py` is asked for, new or resumed."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from launch.shared.backbone_weights import Missing, check_weights, chosen_weights
from launch.shared.command import say
from launch.shared.image_choice import chosen_data, named, skipping
from launch.studies.images import WEIGHTS
from launch.studies.requests import GridRequest
from launch.studies.search_request import asked_method, check_warm_start
from pcl.config.run_config import Plain, RunConfig
from pcl.data.images import ImageSet
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_names import default_name
from pcl.studies.ledger.study_spec import (
    SEARCH,
    StudySpec,
    latest_study,
    read_seeds,
    require_kind,
    space_of,
)
from pcl.studies.results.pareto import read_objectives
from pcl.studies.session.site import machine
from pcl.studies.session.strategies import StageSearch, check_possible
from pcl.studies.session.study_session import Study, search_study
from pcl.studies.space.search_space import SearchSpace, load_space


class Asked(NamedTuple):
    """A study that is about to run.

    Attributes:
        space: What is searched.
        spec: What the study is; its weights are still open where some are missing.
        folder: Where it is kept.
        missing: A backbone that has to be trained first.
    """

    space: SearchSpace
    spec: StudySpec
    folder: StudyFolder
    missing: Missing | None

    def with_weights(self, device: str) -> "Asked":
        """Return the same with nothing missing: trains the backbone where there is none yet."""
        if self.missing is None:
            return self
        overrides = {**self.spec.overrides, WEIGHTS: self.missing.train(device)}
        return self._replace(spec=replace(self.spec, overrides=overrides), missing=None)

    def study(self, is_finalized: bool) -> Study[StageSearch]:
        """Return it as a session takes it.

        Args:
            is_finalized: Whether the best run on the report seeds.
        """
        return search_study(self.folder, StageSearch(self.space, self.spec, is_finalized))


def asked_study(request: GridRequest) -> Asked:
    """Return what is asked for: a new study or one to go on with. Makes nothing."""
    if request.search.objectives == "":  # as by a shell's variable that is not set
        raise ValueError("`--objectives` must not be empty; leave it out.")
    request.run.storage.check()
    if request.study.resume is not None:
        return _resumed(request, request.study.resume)
    if request.space is None:
        raise ValueError("`--space NAME`, `--resume` or `--list` must be given.")
    space, config, search = load_space(request.space), request.config, request.search
    scale = config.scale or ("paper" if machine(request.run.address).get("GPU") else "quick")
    method = asked_method(search, space)
    objectives = read_objectives(search.objectives or "", space)
    overrides, data, missing = _with_data(request, space, scale)
    is_file = request.space.endswith(".py") or "/" in request.space
    spec = StudySpec(
        str(Path(request.space).absolute()) if is_file else space.name,
        space.fingerprint(),
        config.profile,
        scale,
        overrides,
        read_seeds(config.seeds or "") or (space.tuning_seeds if scale == "paper" else space.tuning_seeds[:1]),
        space.report_seeds,
        data,
        method,
        objectives,
        search.replicate or "",
    )
    check_possible(space, spec)
    if method.warm_start:
        check_warm_start(spec, request.run.storage.study(method.warm_start))
    name = request.study.name or default_name(space.name, data, scale)
    return Asked(space, spec, request.run.storage.study(name), missing)


def _resumed(request: GridRequest, name: str) -> Asked:
    storage = request.run.storage
    folder = storage.study(name or latest_study(storage))
    spec = StudySpec.read(folder)
    require_kind(folder, spec, SEARCH)
    space = load_space(space_of(folder, spec))
    if space.fingerprint() != spec.fingerprint:
        raise ValueError(
            f"The space {spec.space} has changed since the study {folder.name!r} began; start a new study (what "
            f"it shares with the old one is not run again), or restore the space."
        )
    images = spec.overrides.get("task.data")
    if space.experiment.has_images and not spec.data.endswith(chosen_data(str(images)).fingerprint):
        raise ValueError(f"The images {images} have changed since {folder.name!r} began.")
    check_weights(str(spec.overrides.get(WEIGHTS, "")))
    return Asked(space, spec, folder, None)


def _with_data(request: GridRequest, space: SearchSpace, scale: str) -> tuple[dict[str, Plain], str, Missing | None]:
    """Return the settings with those of images and weights, the data's name and fingerprint, and what is missing."""
    values: dict[str, Plain] = {**request.config.settings}
    asked = request.config.images
    if not space.experiment.has_images:
        asked.refuse("spaces of images", f"{space.name!r} has none")
        return values, "toy", None
    data = skipping(str(values["task.data"]) if "task.data" in values else asked.data, asked.is_skip_bad)
    images = chosen_data(data)
    values["task.data"] = named(data, images)
    given = {path: value for path, value in {**space.base, **values}.items() if path != WEIGHTS}
    # What all cells have in common, with defaults for what the space varies
    common = RunConfig.of(
        given, loss=space.loss, profile=request.config.profile, scale=scale, task=space.task, encoder=space.encoder
    )
    weights = _weights(asked.weights, space, values, images, common)
    missing = weights if isinstance(weights, Missing) else None
    if isinstance(weights, str):
        values[WEIGHTS] = weights
    return values, f"{images.name}-{images.fingerprint}", missing


def _weights(
    given: str | None, space: SearchSpace, values: dict[str, Plain], images: ImageSet, common: RunConfig
) -> str | Missing | None:
    """Return what `encoder.weights` is to be in every cell; nothing where the space varies it."""
    common.task.check_images(images)
    varied = {path for stage in space.stages for path in stage.paths()}
    if WEIGHTS in varied:
        if given is not None:
            raise ValueError(f"`--weights` must be left out: the space {space.name!r} varies them.")
        return None
    asked = values.get(WEIGHTS, space.base.get(WEIGHTS, given))
    width = common.encoder.pretrained_width
    if width is None:
        if asked is not None:
            raise ValueError(f"`--weights` must be left out: the encoder of {space.name!r} takes none.")
        return None
    if "encoder.width" in varied:
        if asked not in (None, "auto", "none", ""):
            raise ValueError(f"`--weights` must be left out: the space {space.name!r} varies the width.")
        say("weights: none, for the space varies the width; all networks start from scratch")
        return ""
    return chosen_weights(None if asked is None else str(asked), images, width, common.scale.value)
