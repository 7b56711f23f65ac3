"""Choice of images, `--data auto | cifar10h | embedded | FOLDER` and `--skip-bad`, or of a file of features."""

import os
from pathlib import Path

from launch.shared.command import say
from launch.shared.progress_line import Downloads
from pcl.config.run_config import Plain
from pcl.data.arrays import read_features
from pcl.data.folder import RESERVED
from pcl.data.images import SIDE, ImageSet
from pcl.data.sources import SKIP_BAD, data_folder, resolve


def chosen_data(asked: str | None, side: int | None = SIDE) -> ImageSet:
    """Load the requested images; by default CIFAR-10H, or the embedded images if it cannot be downloaded."""
    return resolve(asked or "auto", data_folder(), side=side, may_download=True, tell=say, report=Downloads().tell)


def chosen_features(asked: str | None) -> tuple[dict[str, Plain], str]:
    """Return the settings of a file of features, and its name with its fingerprint."""
    if asked is None:
        raise ValueError("A file of features must be named: `--data FILE.npz`.")
    path = Path(os.path.expanduser(asked)).absolute()
    data = read_features(str(path))
    return {"task.data": str(path), "task.n_features": data.features.shape[1]}, f"{data.name}-{data.fingerprint}"


def skipping(asked: str | None, skip_bad: bool) -> str | None:
    """Return the text of `--data`, marked to skip unreadable files if `--skip-bad` is given."""
    if skip_bad and asked is None:
        raise ValueError("`--skip-bad` goes with a folder of images: name it with `--data FOLDER`.")
    return f"{SKIP_BAD}{asked}" if skip_bad else asked


def named(asked: str | None, data: ImageSet) -> str:
    """Return the value of `task.data`: the name of the images, or the absolute path of a folder."""
    if asked is None or asked in RESERVED:
        return data.name
    path = Path(os.path.expanduser(asked.removeprefix(SKIP_BAD))).absolute()
    return f"{SKIP_BAD if asked.startswith(SKIP_BAD) else ''}{path}"
