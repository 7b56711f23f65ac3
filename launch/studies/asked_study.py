"""The study that a command is asked to run, new or resumed."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from launch.shared.backbone_weights import check_weights
from launch.shared.image_choice import chosen_data, chosen_features
from launch.studies.images import WEIGHTS, Images
from pcl.data.images import SIDE
from pcl.studies.ledger.folders import StudyFolder
from pcl.studies.ledger.opened_study import latest_study, require_kind, space_of
from pcl.studies.ledger.study_spec import StudySpec
from pcl.studies.ledger.study_storage import Storage
from pcl.studies.space.ablation import Ablation
from pcl.studies.space.search_space import SearchSpace

Declared = TypeVar("Declared", SearchSpace, Ablation)


@dataclass(frozen=True)
class Asked(Generic[Declared]):
    """A study that is about to run."""

    declared: Declared
    spec: StudySpec  # without weights as long as they are missing
    folder: StudyFolder
    images: Images  # a backbone may have to be trained first

    def with_weights(self) -> "Asked[Declared]":
        """Return the same with its weights; trains the backbone if there is none yet."""
        images = self.images.with_weights()
        spec = replace(self.spec, overrides={**self.spec.overrides, **images.values})
        return replace(self, spec=spec, images=images)


def resumed(storage: Storage, name: str, kind: str, load: Callable[[str], Declared]) -> Asked[Declared]:
    """Return the study to resume; without a name, the latest of its kind.

    Raises:
        ValueError: If there is none, it belongs to another command, or its space, images or weights have changed.
    """
    folder = storage.study(name or latest_study(storage, kind))
    spec = StudySpec.read(folder)
    require_kind(folder, spec, kind)
    declared = load(space_of(folder, spec))
    if declared.fingerprint() != spec.fingerprint:
        raise ValueError(
            f"{spec.space} has changed since the study {folder.name!r} began; start a new study (results that it "
            f"shares with the old one are reused), or restore the file."
        )
    if declared.experiment.has_images:
        images, side = spec.overrides.get("task.data"), {**declared.base, **spec.overrides}.get("task.side", SIDE)
        if not spec.data.endswith(chosen_data(str(images), int(side)).fingerprint):
            raise ValueError(f"The images {images} have changed since {folder.name!r} began.")
    if declared.experiment.has_features:
        file = str(spec.overrides.get("task.data"))
        if spec.data != chosen_features(file)[1]:
            raise ValueError(f"The features {file} have changed since {folder.name!r} began.")
    check_weights(str(spec.overrides.get(WEIGHTS, "")))
    return Asked(declared, spec, folder, Images({}, spec.data))
