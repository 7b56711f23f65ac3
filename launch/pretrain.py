"""Pretrain the image encoder's backbone: `python launch/pretrain.py --data cifar10h`.

It learns the classes of the training images that a set has apart from its folds, says how many of the set's judged
images it gets right, and keeps the weights in data/weights/, where `launch/train.py` and `launch/grid.py` find them.
"""

import argparse
from dataclasses import replace
from pathlib import Path

from launch.shared.backbone_weights import pretrained
from launch.shared.command import Parser, chosen_device, run, say, whole_number
from launch.shared.image_choice import chosen_data


def main() -> None:
    """Parse the command line, train and keep the weights."""
    arguments = _parser().parse_args()
    from pcl.data.weights import weights_folder  # noqa: PLC0415  -h answers at once
    from pcl.training.pretraining import Recipe  # noqa: PLC0415

    device = chosen_device(arguments.device)
    folder = arguments.output or weights_folder()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`--output` must name a folder, but {folder} is a file.")
    data = chosen_data(arguments.data)
    if not data.has_train:
        raise ValueError(
            f"Pretraining needs training images apart from the folds, which {data.name!r} lacks; take cifar10h or "
            "embedded, or a file with train_images and train_labels."
        )
    given = {name: getattr(arguments, name) for name in ("epochs", "batch_size", "lr", "seed", "erased")}
    recipe = replace(
        Recipe.suited(data, arguments.width), **{name: value for name, value in given.items() if value is not None}
    )
    say(
        f"{data.name}: {len(data.train_images):,} training images, width {recipe.width}, {recipe.epochs} epochs, "
        f"batches of {recipe.batch_size}, seed {recipe.seed}, {device}"
    )
    pretrained(data, recipe, device, folder)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="pretrain.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="auto (default), cifar10h, embedded, or a file with training images")
    parser.add_argument("--width", type=whole_number, default=64, help="channels of the first stage (default: 64)")
    parser.add_argument("--epochs", type=whole_number, help="default: 100; 24 for less than 10,000 images")
    parser.add_argument("--batch-size", type=whole_number, help="default: 512; 64 for less than 10,000 images")
    parser.add_argument("--lr", type=float, help="highest rate (default: 0.2; 0.05 for less than 10,000 images)")
    parser.add_argument("--seed", type=int, help="default: 0")
    parser.add_argument(
        "--erased", type=int, help="side of the square erased in an image (default: 16; 0 for less than 10,000 images)"
    )
    parser.add_argument("--device", default=None, help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--output", type=Path, help="folder to keep the weights in (default: data/weights)")
    return parser


if __name__ == "__main__":
    run(main)
