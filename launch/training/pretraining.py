"""Pretraining of a backbone on the training images that a set has apart from its folds."""

from dataclasses import dataclass, replace
from pathlib import Path

from launch.shared.backbone_weights import pretrained
from launch.shared.command import chosen_device, say
from launch.shared.image_choice import chosen_data
from pcl.data.weights import weights_folder
from pcl.training.pretraining import Recipe


@dataclass(frozen=True)
class PretrainRequest:
    """A request to `launch/pretrain.py`; None leaves the choice to the images.

    Attributes:
        data: Which images.
        width: Channels of the first stage.
        epochs: Passes over the training images.
        batch_size: Images a batch.
        lr: Highest learning rate.
        seed: Seed of the initial weights and of the batches.
        erased: Side of the square that is erased in an image.
        device: cpu or cuda.
        output: Folder to keep the weights in.
    """

    data: str | None
    width: int
    epochs: int | None
    batch_size: int | None
    lr: float | None
    seed: int | None
    erased: int | None
    device: str | None
    output: Path | None


def pretrain(request: PretrainRequest) -> None:
    """Train a backbone and keep its weights."""
    device = chosen_device(request.device)
    folder = request.output or weights_folder()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`--output` must name a folder, but {folder} is a file.")
    data = chosen_data(request.data)
    if not data.has_train:
        raise ValueError(
            f"Pretraining needs training images apart from the folds, which {data.name!r} lacks; take cifar10h or "
            "embedded, or a file with train_images and train_labels."
        )
    given = {name: getattr(request, name) for name in ("epochs", "batch_size", "lr", "seed", "erased")}
    recipe = replace(
        Recipe.suited(data, request.width), **{name: value for name, value in given.items() if value is not None}
    )
    say(
        f"{data.name}: {len(data.train_images):,} training images, width {recipe.width}, {recipe.epochs} epochs, "
        f"batches of {recipe.batch_size}, seed {recipe.seed}, {device}"
    )
    pretrained(data, recipe, device, folder)
