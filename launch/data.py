"""Get real images: `python launch/data.py` downloads CIFAR-10 and CIFAR-10H into data/ and builds the training cache.

If it is interrupted, run it again to continue. Without a network: `python launch/data.py --from cifar10.npz`, with the
arrays train_images, train_labels, test_images, test_labels and optionally cifar10h_probs, or `--from FOLDER` with
torchvision's cifar-10-batches-py in it. CIFAR-10H (Peterson et al., 2019) is under CC BY-NC-SA 4.0.
"""

import argparse
from pathlib import Path

from launch.shared.command import Parser, run


def main() -> None:
    """Parse the command line, get the data and describe it."""
    given = vars(_parser().parse_args())
    from launch.training.dataset import prepare  # noqa: PLC0415  -h answers at once

    prepare(**given)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(__doc__)
    parser.add_argument("--folder", type=Path, help="folder of the cache (default: PCL_DATA, which may be an "
                        "object store such as s3://BUCKET/PREFIX; else data)")  # fmt: skip
    parser.add_argument(
        "--from",
        type=Path,
        dest="source",
        metavar="FILE|FOLDER",
        help="take images from here instead of downloading them",
    )
    parser.add_argument("--cifar10h", type=Path, help="the authors' cifar10h-probs.npy; needs --from")
    parser.add_argument("--picture", type=Path, help="draw the embedded images into a PNG, and stop")
    return parser


if __name__ == "__main__":
    run(main)
