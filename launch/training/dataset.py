"""CIFAR-10 and CIFAR-10H for training: downloaded, or taken from a user's files, and kept in a cache."""

import time
from pathlib import Path

from launch.shared.command import require_folder, say
from launch.shared.progress_line import Downloads
from pcl.data import ImageSet, Unreachable, cache_file, cached, fetch, take, write_sheet
from pcl.data.sources import data_folder


def prepare(*, folder: Path | None, source: Path | None, cifar10h: Path | None, picture: Path | None) -> None:
    """Get the data and describe it; for the arguments see `launch/data.py`."""
    if picture and picture.is_dir():
        raise ValueError(f"`--picture` must name a file, but {picture} is a folder.")
    if picture:
        write_sheet(picture)
        say(f"{picture}: {picture.stat().st_size / 1e3:.0f} kB")
        return
    folder = folder or data_folder()
    require_folder("--folder", folder)
    if cifar10h and not source:
        raise ValueError("`--cifar10h` goes with `--from`; without it, everything is downloaded.")
    if cifar10h and not cifar10h.is_file():
        raise ValueError(f"`--cifar10h` must name the authors' cifar10h-probs.npy, but {cifar10h} is no file.")
    started = time.perf_counter()
    images = _taken(source, cifar10h, folder) if source else _fetched(folder)
    _describe(images, folder, time.perf_counter() - started)


def _fetched(folder: Path) -> ImageSet:
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


def _taken(source: Path, cifar10h: Path | None, folder: Path) -> ImageSet:
    try:
        return take(source, cifar10h or folder / "cifar10h-probs.npy", folder, Downloads().tell)
    except Unreachable as error:
        told = str(error).rstrip(".")
        raise ValueError(
            f"{source} has no cifar10h_probs, and {told}; give the authors' file with `--cifar10h FILE`."
        ) from None


def _describe(images: ImageSet, folder: Path, seconds: float) -> None:
    path = cache_file(images.name, folder)
    shares = images.soft_labels.double()
    entropy = -(shares * shares.clamp_min(1e-12).log()).sum(1).mean()
    agreement = (images.soft_labels.argmax(1) == images.hard_labels).double().mean()
    say(f"{path}: {path.stat().st_size / 1e6:.0f} MB, fingerprint {images.fingerprint}, ready in {seconds:.1f} s")
    say(
        f"{len(images.images):,} images with shares of annotators (mean entropy {entropy:.3f}, most voted class is the "
        f"label of {agreement:.2%}), {len(images.train_images):,} training images, {len(images.classes)} classes"
    )
