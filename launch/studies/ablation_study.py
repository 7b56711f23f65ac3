"""The study that `launch/ablate.py` is asked for, new or resumed."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from launch.shared.backbone_weights import check_weights
from launch.shared.command import say
from launch.shared.image_choice import chosen_data
from launch.studies.images import NO_IMAGES, WEIGHTS, Images, chosen_images
from launch.studies.requests import AblationRequest
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.study_names import default_name
from pcl.studies.ledger.study_spec import ABLATION, StudySpec, latest_study, read_seeds, require_kind, space_of
from pcl.studies.session.ablation_study import ablation_study
from pcl.studies.session.site import machine
from pcl.studies.session.strategies import TrialList
from pcl.studies.session.study_session import Study
from pcl.studies.space.ablation import Ablation, Cells, load_ablation, seeds_at


class Asked(NamedTuple):
    """An ablation that is about to run.

    Attributes:
        ablation: What is asked.
        spec: What the study is.
        folder: Where it is kept.
        images: Which images; a backbone may have to be trained first.
    """

    ablation: Ablation
    spec: StudySpec
    folder: StudyFolder
    images: Images

    def cells(self) -> Cells:
        """Return its trials, and the variants that are not possible."""
        spec = self.spec
        return self.ablation.cells(spec.profile, spec.scale, spec.report_seeds, spec.overrides, spec.data)

    def with_weights(self) -> "Asked":
        """Return the same with nothing missing: trains the backbone where there is none yet."""
        images = self.images.with_weights()
        overrides = {**self.spec.overrides, **images.values}
        return self._replace(spec=replace(self.spec, overrides=overrides), images=images)

    def study(self) -> Study[TrialList]:
        """Return it as a session takes it."""
        return ablation_study(self.folder, self.ablation, self.spec, say)


def asked_ablation(request: AblationRequest) -> Asked:
    """Return what is asked for: a new study or one to go on with. Makes nothing."""
    request.run.storage.check()
    if request.study.resume is not None:
        return _resumed(request, request.study.resume)
    if request.ablation is None:
        raise ValueError("`--ablation NAME`, `--resume` or `--list` must be given.")
    ablation, config = load_ablation(request.ablation), request.config
    scale = config.scale or ("paper" if machine(request.run.address).get("GPU") else "quick")
    images = NO_IMAGES
    if ablation.experiment.has_images:
        images = chosen_images(config, scale, ablation.task, ablation.encoder)
    else:
        config.images.refuse("ablations of images", f"{ablation.name!r} has none")
    is_file = request.ablation.endswith(".py") or "/" in request.ablation
    spec = StudySpec(
        str(Path(request.ablation).absolute()) if is_file else ablation.name, ablation.fingerprint(), config.profile,
        scale, {**config.settings, **images.values}, (), read_seeds(config.seeds or "") or seeds_at(scale),
        images.data, kind=ABLATION,
    )  # fmt: skip
    name = request.study.name or default_name(ablation.name, images.data, scale)
    asked = Asked(ablation, spec, request.run.storage.study(name), images)
    asked.cells()  # possible, or a sentence that says why not
    return asked


def _resumed(request: AblationRequest, name: str) -> Asked:
    storage = request.run.storage
    folder = storage.study(name or latest_study(storage, ABLATION))
    spec = StudySpec.read(folder)
    require_kind(folder, spec, ABLATION)
    ablation = load_ablation(space_of(folder, spec))
    if ablation.fingerprint() != spec.fingerprint:
        raise ValueError(f"The ablation {spec.space} has changed since {folder.name!r} began; start a new study.")
    if ablation.experiment.has_images:
        if not spec.data.endswith(chosen_data(str(spec.overrides["task.data"])).fingerprint):
            raise ValueError(f"The images {spec.overrides['task.data']} have changed since {folder.name!r} began.")
        check_weights(str(spec.overrides.get(WEIGHTS, "")))
    return Asked(ablation, spec, folder, Images({}, spec.data, None))
