"""The images that a command's trials are of, and the backbone that they start from."""

from collections.abc import Mapping
from dataclasses import dataclass

from launch.shared.backbone_weights import Missing, chosen_weights
from launch.shared.image_choice import chosen_data, named, skipping
from launch.studies.requests import ConfigRequest
from pcl.config.run_config import Plain, RunConfig
from pcl.encoders import ResNetEncoder
from pcl.losses import LOSSES
from pcl.studies.session.site import machine
from pcl.tasks import CifarTask

WEIGHTS = "encoder.weights"


@dataclass(frozen=True)
class Images:
    """A choice of images and of the backbone that training starts from.

    Attributes:
        values: Settings that say it.
        data: Name and fingerprint.
        missing: A backbone that has to be trained first.
    """

    values: dict[str, Plain]
    data: str
    missing: Missing | None

    def with_weights(self) -> "Images":
        """Return the same with nothing missing: trains the backbone where there is none yet."""
        if self.missing is None:
            return self
        weights = self.missing.train("cuda" if machine()["GPU"] else "cpu")
        return Images({**self.values, WEIGHTS: weights}, self.data, None)

    @property
    def name(self) -> str:
        """The images' name without the fingerprint."""
        return self.data.rpartition("-")[0] or self.data


NO_IMAGES = Images({}, "toy", None)


def chosen_images(request: ConfigRequest, scale: str) -> Images:
    """Return the images and the backbone that `--data`, `--weights` and `--set` ask for."""
    asked = skipping(request.images.data, request.images.is_skip_bad)
    images = chosen_data(asked)
    width = request.settings.get("encoder.width")
    config = RunConfig.of({} if width is None else {"encoder.width": width}, scale=scale, task="images")
    assert isinstance(config.task, CifarTask.Config)
    assert isinstance(config.encoder, ResNetEncoder.Config)
    config.task.check(images)
    weights = chosen_weights(request.images.weights, images, config.encoder.width, scale)
    values: dict[str, Plain] = {"task.data": named(asked, images)}
    data = f"{images.name}-{images.fingerprint}"
    if isinstance(weights, Missing):
        return Images(values, data, weights)
    return Images({**values, WEIGHTS: weights}, data, None)


def check_settings(values: Mapping[str, Plain]) -> None:
    """Raise a ValueError unless every setting is one of some run's."""
    readers = [RunConfig.of(loss=loss, task=task) for loss in LOSSES for task in ("toy", "images")]
    for path, value in values.items():
        having = [reader for reader in readers if path in reader.paths()]
        (having or readers)[0].read(path, value)
