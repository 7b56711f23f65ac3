"""Images that a command's trials train on, and the backbone that they start from."""

from collections.abc import Mapping
from dataclasses import dataclass

from launch.shared.backbone_weights import Missing, chosen_weights
from launch.shared.image_choice import chosen_data, named, skipping
from launch.studies.requests import ConfigRequest
from pcl.config.run_config import EXPERIMENTS, Plain, RunConfig
from pcl.data.images import ImageSet
from pcl.losses import LOSSES
from pcl.studies.session.site import machine

WEIGHTS = "encoder.weights"


@dataclass(frozen=True)
class Images:
    """A choice of images and of the backbone that training starts from."""

    values: dict[str, Plain]  # the settings of the choice
    data: str  # name and fingerprint
    missing: Missing | None = None  # a backbone that has to be trained first

    def with_weights(self) -> "Images":
        """Return the same with its weights; trains the backbone if there is none yet."""
        if self.missing is None:
            return self
        weights = self.missing.train("cuda" if machine()["GPU"] else "cpu")
        return Images({**self.values, WEIGHTS: weights}, self.data)

    @property
    def name(self) -> str:
        """Return the images' name without the fingerprint."""
        return self.data.rpartition("-")[0] or self.data


NO_IMAGES = Images({}, "toy")


def chosen_images(
    request: ConfigRequest, scale: str, task: str = "images", encoder: str = "", base: Mapping[str, Plain] | None = None
) -> Images:
    """Return the images and the backbone that `--data`, `--weights` and `--set` ask for, on top of base settings."""
    asked = skipping(request.images.data, request.images.is_skip_bad)
    settings = {**(base or {}), **request.settings}
    given = {path: value for path, value in settings.items() if path in ("encoder.width", "task.side")}
    config = RunConfig.of(given, scale=scale, task=task, encoder=encoder)
    images = chosen_data(asked, config.task.inputs.shape[-1])
    config.task.check_images(images)
    values: dict[str, Plain] = {"task.data": named(asked, images)}
    width, weights = config.encoder.pretrained_width, None
    if width is not None:
        weights = chosen_weights(request.images.weights, images, width, scale)
    return with_weights(values, images, weights)


def with_weights(values: dict[str, Plain], images: ImageSet, weights: str | Missing | None) -> Images:
    """Return images with the chosen weights; None leaves that setting alone."""
    data = f"{images.name}-{images.fingerprint}"
    if isinstance(weights, str):
        return Images({**values, WEIGHTS: weights}, data)
    return Images(values, data, weights)


def check_settings(values: Mapping[str, Plain]) -> None:
    """Raise a ValueError unless every setting exists in some run."""
    readers = [RunConfig.of(loss=loss, task=task) for loss in LOSSES for task in EXPERIMENTS]
    for path, value in values.items():
        having = [reader for reader in readers if path in reader.paths()]
        (having or readers)[0].read(path, value)
