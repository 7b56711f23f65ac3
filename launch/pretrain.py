"""Pretrain the image encoder's backbone: `python launch/pretrain.py --data cifar10h`.

It trains a classifier on the training images that a set has apart from its folds, prints the accuracy on the images of
the folds, and keeps the weights in data/weights/, where `launch/train.py` and `launch/grid.py` find them.
"""

import argparse
from pathlib import Path

from launch.shared.command import Parser, device_flag, run, whole_number


def main() -> None:
    """Parse the command line, train and keep the weights."""
    given = vars(_parser().parse_args())
    from launch.training.pretraining import pretrain  # noqa: PLC0415  -h answers at once

    pretrain(**given)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("--data", metavar="NAME|FILE", help="images: auto (default), cifar10h, embedded, or a file")
    parser.add_argument("--width", type=whole_number, default=64, help="channels of the first stage (default: 64)")
    parser.add_argument("--epochs", type=whole_number, help="default: 100; 24 for fewer than 10,000 images")
    parser.add_argument("--batch-size", type=whole_number, help="default: 512; 64 for fewer than 10,000 images")
    parser.add_argument(
        "--lr", type=float, help="highest learning rate (default: 0.2; 0.05 for fewer than 10,000 images)"
    )
    parser.add_argument("--seed", type=int, help="default: 0")
    parser.add_argument(
        "--erased",
        type=int,
        help="side of the square erased in each image (default: 16; 0 for fewer than 10,000 images)",
    )
    device_flag(parser)
    parser.add_argument("--output", type=Path, metavar="FOLDER", help="folder for the weights (default: data/weights)")
    return parser


if __name__ == "__main__":
    run(main)
