"""Which study `launch/grid.py` is asked for: a new one or one to go on with."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from launch.shared.backbone_weights import Missing, check_weights, chosen_weights
from launch.shared.command import say, settings
from launch.shared.image_choice import chosen_data, named, skipping
from launch.shared.search_request import asked_method, check_possible, check_warm_start
from launch.shared.study_flags import default_name, machine, refuse_with_resume

if TYPE_CHECKING:
    from pcl.config.run_config import Plain, RunConfig
    from pcl.data.images import ImageSet
    from pcl.studies.ledger.folders import StudyFolder
    from pcl.studies.ledger.study_spec import StudySpec
    from pcl.studies.ledger.study_storage import Storage
    from pcl.studies.space.search_space import SearchSpace

WEIGHTS = "encoder.weights"


class Asked(NamedTuple):
    """A study that is about to run.

    Attributes:
        space: What is searched.
        spec: What the study is; its weights are still open where some are missing.
        folder: Where it is kept.
        missing: A backbone that has to be trained first.
    """

    space: "SearchSpace"
    spec: "StudySpec"
    folder: "StudyFolder"
    missing: Missing | None

    def with_weights(self, device: str) -> "Asked":
        """The same with nothing missing: trains the backbone where there is none yet."""
        if self.missing is None:
            return self
        overrides = {**self.spec.overrides, WEIGHTS: self.missing.train(device)}
        return self._replace(spec=replace(self.spec, overrides=overrides), missing=None)


def asked_study(arguments: argparse.Namespace) -> Asked:
    """What is asked for: a new study or one to go on with. Makes nothing."""
    from pcl.studies.ledger.study_spec import (  # noqa: PLC0415
        SEARCH,
        StudySpec,
        latest_study,
        read_seeds,
        require_kind,
        space_of,
    )
    from pcl.studies.results.pareto import read_objectives  # noqa: PLC0415
    from pcl.studies.space.search_space import load_space  # noqa: PLC0415

    for name in ("seeds", "objectives"):  # as by a shell's variable that is not set
        if getattr(arguments, name) == "":
            raise ValueError(f"`--{name.replace('_', '-')}` must not be empty; leave it out.")
    storage: Storage = arguments.storage
    storage.check()
    if arguments.resume is not None:
        fixed = (
            "space", "scale", "fidelity", "set", "seeds", "name", "data", "skip_bad", "weights",
            "search", "trials", "search_seed", "sampler", "warm_start", "objectives", "scheduler", "replicate",
        )  # fmt: skip
        refuse_with_resume(arguments, fixed)
        folder = storage.study(arguments.resume or latest_study(storage))
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
    if arguments.space is None:
        raise ValueError("`--space NAME`, `--resume` or `--list` must be given.")
    space = load_space(arguments.space)
    scale = arguments.scale or ("paper" if machine(arguments.address).get("GPU") else "quick")
    method = asked_method(arguments, space)
    objectives = read_objectives(arguments.objectives or "", space)
    overrides, data, missing = _with_data(arguments, space, scale)
    is_file = arguments.space.endswith(".py") or "/" in arguments.space
    spec = StudySpec(
        str(Path(arguments.space).absolute()) if is_file else space.name,
        space.fingerprint(),
        arguments.fidelity or "reference",
        scale,
        overrides,
        read_seeds(arguments.seeds or "") or (space.tuning_seeds if scale == "paper" else space.tuning_seeds[:1]),
        space.report_seeds,
        data,
        method,
        objectives,
        arguments.replicate or "",
    )
    check_possible(space, spec)
    if method.warm_start:
        check_warm_start(spec, storage.study(method.warm_start))
    name = arguments.name or default_name(space.name, data, scale)
    return Asked(space, spec, storage.study(name), missing)


def _with_data(
    arguments: argparse.Namespace, space: "SearchSpace", scale: str
) -> tuple[dict[str, "Plain"], str, Missing | None]:
    """The settings of `--set`, those that say which images and weights are used, the data's name and fingerprint."""
    values: dict[str, Plain] = {**settings(arguments.set)}
    if not space.experiment.has_images:
        for name in ("data", "weights", "skip_bad"):
            if getattr(arguments, name) not in (None, False):
                raise ValueError(f"`--{name.replace('_', '-')}` is for spaces of images, but {space.name!r} has none.")
        return values, "toy", None
    asked = skipping(str(values["task.data"]) if "task.data" in values else arguments.data, arguments.skip_bad)
    images = chosen_data(asked)
    values["task.data"] = named(asked, images)
    weights = _weights(arguments, space, values, images, _common(arguments, space, scale, values))
    missing = weights if isinstance(weights, Missing) else None
    if isinstance(weights, str):
        values[WEIGHTS] = weights
    return values, f"{images.name}-{images.fingerprint}", missing


def _common(arguments: argparse.Namespace, space: "SearchSpace", scale: str, values: dict[str, "Plain"]) -> "RunConfig":
    """What all cells have in common, with defaults for what the space varies."""
    from pcl.config.run_config import RunConfig  # noqa: PLC0415  -h answers at once

    given = {path: value for path, value in {**space.base, **values}.items() if path != WEIGHTS}
    profile = arguments.fidelity or "reference"
    return RunConfig.of(given, loss=space.loss, profile=profile, scale=scale, task=space.task, encoder=space.encoder)


def _weights(
    arguments: argparse.Namespace, space: "SearchSpace", values: dict[str, "Plain"], images: "ImageSet",
    common: "RunConfig",
) -> str | Missing | None:  # fmt: skip
    """What `encoder.weights` is to be in every cell; nothing where the space varies it."""
    common.task.check_images(images)
    varied = {path for stage in space.stages for path in stage.paths()}
    if WEIGHTS in varied:
        if arguments.weights is not None:
            raise ValueError(f"`--weights` must be left out: the space {space.name!r} varies them.")
        return None
    asked = values.get(WEIGHTS, space.base.get(WEIGHTS, arguments.weights))
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
