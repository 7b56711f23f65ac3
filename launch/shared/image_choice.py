"""Which images a command works on: `--data auto | cifar10h | embedded | FOLDER` and `--skip-bad`."""

from pathlib import Path

from launch.shared.command import say
from launch.shared.progress_line import Downloads
from pcl.data.folder import RESERVED
from pcl.data.images import ImageSet
from pcl.data.sources import SKIP_BAD, data_folder, resolve


def chosen_data(asked: str | None) -> ImageSet:
    """The images that were asked for; CIFAR-10H, where it is or can be had, or else the embedded ones, by default."""
    return resolve(asked or "auto", data_folder(), may_download=True, tell=say, report=Downloads().tell)


def skipping(asked: str | None, skip_bad: bool) -> str | None:
    """The images that were asked for, without files that cannot be read where `--skip-bad` says so."""
    if skip_bad and asked is None:
        raise ValueError("`--skip-bad` goes with a folder of images: name it with `--data FOLDER`.")
    return f"{SKIP_BAD}{asked}" if skip_bad else asked


def named(asked: str | None, data: ImageSet) -> str:
    """What `task.data` is to say: of "auto", what was taken; of a path, where it is."""
    if asked is None or asked in RESERVED:
        return data.name
    path = Path(asked.removeprefix(SKIP_BAD)).expanduser().absolute()
    return f"{SKIP_BAD if asked.startswith(SKIP_BAD) else ''}{path}"
