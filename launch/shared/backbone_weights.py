"""Choice of a pretrained backbone: `--weights auto | none | FILE`.

`auto` takes the most accurate weights kept for these images and this width. If there are none yet, they are trained
first, once. At scale `smoke`, and for images without a training set, networks start from scratch.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from launch.shared.command import say
from launch.shared.progress_line import Progress
from pcl.data.images import ImageSet
from pcl.data.weights import Weights, is_kept, keep_weights, kept_weights, named_weights, weights_file, weights_folder
from pcl.encoders.resnet import adopted_weights, require_fitting
from pcl.encoders.stem import Stem
from pcl.presentation.durations import duration
from pcl.training.pretraining import Pretraining, Recipe


@dataclass(frozen=True, eq=False)
class Missing:
    """A backbone that has to be trained first."""

    data: ImageSet
    width: int  # channels of the first stage

    def __str__(self) -> str:
        recipe = Recipe.suited(self.data, self.width)
        return (
            f"a backbone of width {self.width}, {recipe.epochs} epochs of the {len(self.data.train_images):,} training "
            f"images of {self.data.name}, once for all later runs (`--weights none` starts from scratch)"
        )

    def train(self, device: str) -> str:
        """Train the backbone and keep its weights; returns the value of `encoder.weights`."""
        say(f"pretraining first: {self}")
        return pretrained(self.data, Recipe.suited(self.data, self.width), device, weights_folder()).name


def chosen_weights(asked: str | None, data: ImageSet, width: int, scale: str) -> str | Missing:
    """Return the value of `encoder.weights`, or the backbone that has to be trained first."""
    if asked in ("none", ""):
        return ""
    if asked not in (None, "auto"):
        return _adopted(str(asked), width, Stem.of(data.side)).file_name
    if scale == "smoke" or not data.has_train:
        return ""
    if kept := kept_weights(weights_folder(), Stem.of(data.side).kind, width, data.fingerprint):
        say(f"weights: {kept[0]}")
        return kept[0].file_name
    return Missing(data, width)


def _adopted(text: str, width: int, stem: Stem) -> Weights:
    """Return kept weights by name, or those of any file, keeping a copy of it."""
    path = Path(os.path.expanduser(text))
    path = path if path.is_file() else weights_file(text)
    if not path.is_file():
        raise ValueError(f"`--weights` must be auto, none or a file, here or in {weights_folder()}, but got {text!r}.")
    weights = adopted_weights(path, stem)
    require_fitting(weights, width, stem)
    if not is_kept(weights, weights_folder()):
        keep_weights(weights, weights_folder())
    return weights


def check_weights(name: str) -> None:
    """Raise a ValueError if the weights of a study are gone."""
    if name and not (file := weights_file(name)).is_file():
        raise ValueError(f"The weights {file} that the study began with are gone: put them back, or start a new study.")
    if name:
        named_weights(name)


def pretrained(data: ImageSet, recipe: Recipe, device: str, folder: Path) -> Path:
    """Train a backbone with a progress line and keep it; returns its file."""
    started = time.perf_counter()
    training = Pretraining(data, recipe, device)
    with Progress(lambda: training.batch, training.n_batches, lambda: "nothing was kept") as progress:
        for epoch in training:
            progress.shown = f"epoch {epoch.epoch}/{recipe.epochs}  loss {epoch.loss:.3f}  right {epoch.accuracy:.1%}"
    weights = training.weights()
    path = keep_weights(weights, folder)
    say(f"{path}: accuracy {weights.accuracy:.2%}, in {duration(time.perf_counter() - started)} on {device}")
    return path
