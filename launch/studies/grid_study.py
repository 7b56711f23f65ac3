"""The study that `launch/grid.py` is asked to run, new or resumed."""

from collections.abc import Mapping

from launch.shared.backbone_weights import Missing, chosen_weights
from launch.shared.command import say
from launch.shared.image_choice import chosen_data, chosen_features, named, skipping
from launch.studies.asked_study import Asked, resumed
from launch.studies.images import NO_IMAGES, WEIGHTS, Images, with_weights
from launch.studies.requests import StudyRequest
from pcl.config.run_config import Plain, RunConfig
from pcl.data.images import ImageSet
from pcl.studies.ledger.study_spec import SEARCH
from pcl.studies.session.new_study import Runs, check_warm_start, folder_of, method_of, search_spec
from pcl.studies.session.site import default_scale
from pcl.studies.space.declarations import recorded_name
from pcl.studies.space.search_space import SearchSpace, load_space


def asked_study(request: StudyRequest) -> Asked[SearchSpace]:
    """Return the requested study, new or to be resumed; creates nothing."""
    storage, config = request.run.storage, request.config
    storage.check()
    if request.study.resume is not None:
        return resumed(storage, request.study.resume, SEARCH, load_space)
    if request.declared is None:
        raise ValueError("`--space NAME`, `--resume` or `--list` must be given.")
    space = load_space(request.declared)
    scale = config.scale or default_scale(request.run.address)
    method = method_of(request.search, space)
    images = _images(request, space, scale)
    runs = Runs(config.profile, scale, {**config.settings, **images.values}, config.seeds, images.data)
    spec = search_spec(space, recorded_name(request.declared), runs, method, request.search)
    if method.warm_start:
        check_warm_start(spec, storage.study(method.warm_start))
    return Asked(space, spec, folder_of(storage, request.study.name, space, spec), images)


def _images(request: StudyRequest, space: SearchSpace, scale: str) -> Images:
    asked, values = request.config.images, request.config.settings
    if space.experiment.has_features:
        asked.refuse("spaces of images", f"{space.name!r} is of features", takes_data=True)
        return Images(*chosen_features(values.get("task.data", asked.data)))
    if not space.experiment.has_images:
        asked.refuse("spaces of images", f"{space.name!r} has none")
        return NO_IMAGES
    if any("task.side" in stage.paths() for stage in space.stages):
        raise ValueError(f"A space must not vary `task.side`, but {space.name!r} does: its images are read once.")
    data = skipping(values.get("task.data", asked.data), asked.is_skip_bad)
    given = {path: value for path, value in {**space.base, **values}.items() if path != WEIGHTS}
    # Settings that all cells share, with defaults for those that the space varies
    common = RunConfig.of(
        given, loss=space.loss, profile=request.config.profile, scale=scale, task=space.task, encoder=space.encoder
    )
    images = chosen_data(data, common.task.inputs.shape[-1])
    chosen: dict[str, Plain] = {"task.data": named(data, images)}
    return with_weights(chosen, images, _weights(asked.weights, space, values, images, common))


def _weights(
    given: str | None, space: SearchSpace, values: Mapping[str, Plain], images: ImageSet, common: RunConfig
) -> str | Missing | None:
    """Return the value of `encoder.weights` in every cell; None if the space varies it or the encoder takes none."""
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
        say("weights: none, because the space varies the width; all networks start from scratch")
        return ""
    return chosen_weights(None if asked is None else str(asked), images, width, common.scale.value)
