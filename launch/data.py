"""Real images: `python launch/data.py` gets CIFAR-10 and CIFAR-10H into data/ and builds the cache that training reads.

Interrupted, it goes on from where it was. Without a network: `python launch/data.py --from cifar10.npz`, with the
arrays train_images, train_labels, test_images, test_labels and maybe cifar10h_probs, or `--from FOLDER`, which holds
torchvision's cifar-10-batches-py. CIFAR-10H (Peterson et al., 2019) is under CC BY-NC-SA 4.0.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from launch.shared.command import Parser, run, say
from launch.shared.progress_line import Downloads

if TYPE_CHECKING:
    from pcl.data import ImageSet


def main() -> None:
    """Parse the command line, get the data and say what is there."""
    arguments = _parser().parse_args()
    if arguments.picture:
        _draw(arguments.picture)
        return
    folder = arguments.folder = arguments.folder or _default_folder()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"`--folder` must name a folder, but {folder} is a file.")
    if arguments.cifar10h and not arguments.source:
        raise ValueError("`--cifar10h` goes with `--from`; without it, everything is downloaded.")
    if arguments.cifar10h and not arguments.cifar10h.is_file():
        raise ValueError(
            f"`--cifar10h` must name the authors' cifar10h-probs.npy, but {arguments.cifar10h} is no file."
        )
    started = time.perf_counter()
    images = _taken(arguments) if arguments.source else _fetched(folder)
    _describe(images, folder, time.perf_counter() - started)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="data.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where to (default: PCL_DATA, which may be a store such as "
                        "s3://BUCKET/PREFIX, else data)")  # fmt: skip
    parser.add_argument(
        "--from", type=Path, dest="source", metavar="FILE", help="an .npz, or a folder with torchvision's files"
    )
    parser.add_argument("--cifar10h", type=Path, metavar="FILE", help="the authors' cifar10h-probs.npy, with --from")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="write a PNG of the embedded set, and stop")
    return parser


def _default_folder() -> Path:
    from pcl.data.sources import data_folder  # noqa: PLC0415  -h answers at once

    return data_folder()


def _fetched(folder: Path) -> "ImageSet":
    """From the cache, or from the network."""
    from pcl.data import Unreachable, cache_file, cached, fetch  # noqa: PLC0415  -h answers at once

    path = cache_file("cifar10h", folder)
    try:
        if not path.is_file():
            return fetch(folder, Downloads().tell)
        images = cached(folder, Downloads().tell)
        say(f"{path} is there already")
        return images
    except Unreachable as error:
        told = str(error).rstrip(".")
        raise ValueError(f"{told}; run it again with a network, or give files you have with `--from FILE`.") from None
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; the same command goes on from where it was") from None


def _taken(arguments: argparse.Namespace) -> "ImageSet":
    from pcl.data import Unreachable, take  # noqa: PLC0415

    probs = arguments.cifar10h or arguments.folder / "cifar10h-probs.npy"
    try:
        return take(arguments.source, probs, arguments.folder, Downloads().tell)
    except Unreachable as error:
        told = str(error).rstrip(".")
        raise ValueError(
            f"{arguments.source} has no cifar10h_probs, and {told}; give the authors' file with `--cifar10h FILE`."
        ) from None


def _describe(images: "ImageSet", folder: Path, seconds: float) -> None:
    from pcl.data import cache_file  # noqa: PLC0415

    path = cache_file(images.name, folder)
    shares = images.soft_labels.double()
    entropy = -(shares * shares.clamp_min(1e-12).log()).sum(1).mean()
    agreement = (images.soft_labels.argmax(1) == images.hard_labels).double().mean()
    say(f"{path}: {path.stat().st_size / 1e6:.0f} MB, fingerprint {images.fingerprint}, ready in {seconds:.1f} s")
    say(
        f"{len(images.images):,} images with shares of annotators (mean entropy {entropy:.3f}, most voted class is the "
        f"label of {agreement:.2%}), {len(images.train_images):,} training images, {len(images.classes)} classes"
    )


def _draw(path: Path) -> None:
    from pcl.data import write_sheet  # noqa: PLC0415

    if path.is_dir():
        raise ValueError(f"`--picture` must name a file, but {path} is a folder.")
    write_sheet(path)
    say(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    run(main)
