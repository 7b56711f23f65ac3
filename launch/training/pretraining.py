"""Pretraining of a backbone on the training images that a set has apart from its folds."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from launch.shared.backbone_weights import pretrained
from launch.shared.command import chosen_device, require_folder, say
from launch.shared.image_choice import chosen_data
from pcl.data.weights import weights_folder
from pcl.training.pretraining import Recipe


def pretrain(
    *, data: str | None, width: int, epochs: int | None, batch_size: int | None, lr: float | None, seed: int | None,
    erased: int | None, device: str | None, output: Path | None,
) -> None:  # fmt: skip
    """Train a backbone and keep its weights; None leaves the choice to the images."""
    device, folder = chosen_device(device), output or weights_folder()
    require_folder("--output", folder)
    images = chosen_data(data, side=None)
    if not images.has_train:
        raise ValueError(
            f"Pretraining needs training images apart from the folds, which {images.name!r} lacks; take cifar10h or "
            "embedded, or a file with train_images and train_labels."
        )
    given = {"epochs": epochs, "batch_size": batch_size, "lr": lr, "seed": seed, "erased": erased}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    recipe = replace(Recipe.suited(images, width), **chosen)
    say(
        f"{images.name}: {len(images.train_images):,} training images, width {recipe.width}, {recipe.epochs} epochs, "
        f"batches of {recipe.batch_size}, seed {recipe.seed}, {device}"
    )
    pretrained(images, recipe, device, folder)
