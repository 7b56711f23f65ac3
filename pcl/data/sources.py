"""Image sets by the name that a user gives: cached, downloaded or embedded sets, or the user's own folder or file."""

import os
import re
from functools import lru_cache
from pathlib import Path

from pcl.data.arrays import CIFAR10H, Arrays, cifar10h, image_set, read_npz, read_probs, read_torchvision
from pcl.data.download import Remote, Report, Unreachable, download
from pcl.data.embedded import embedded
from pcl.data.folder import RESERVED, BadFiles, Tell, read_folder
from pcl.data.images import SIDE, ImageSet, cache_file, load, save
from pcl.storage.files import Damaged, set_aside, warn
from pcl.storage.installation import command
from pcl.storage.locks import process_lock
from pcl.storage.mirror import Mirrored
from pcl.storage.object_stores import check_address, copy_of, is_address

_AUTHORS = "https://raw.githubusercontent.com/jcpeterson/cifar-10h/master/data"
PROBS = Remote(
    f"{_AUTHORS}/cifar10h-probs.npy", "cifar10h-probs.npy",
    "sha256", "436ae98620e00073f9d08585ac870573b588853e7af9f54eb1647408114af77d",
)  # fmt: skip
COUNTS = Remote(
    f"{_AUTHORS}/cifar10h-counts.npy", "cifar10h-counts.npy",
    "sha256", "9b36b4550349af56c79083356312eb4af856cc5fd3caf1f669d40b9d0bbb69ff",
)  # fmt: skip

SKIP_BAD = "skip-bad:"  # prefix of a folder whose unreadable files are left out, every time that it is read


def data_place() -> str:
    """Return where every node looks for image sets: an absolute folder, or the address of a store."""
    given = os.environ.get("PCL_DATA", "data")
    if not is_address(given):
        return str(Path(given).absolute())
    check_address(given)
    return given


def data_folder() -> Path:
    """Return the folder of image sets: PCL_DATA or ./data; for a store, this machine's copy of it."""
    given = os.environ.get("PCL_DATA", "data")
    return _copied(given) if is_address(given) else Path(given)


@lru_cache
def _copied(uri: str) -> Path:
    """Return this machine's copy of the image sets and weights in a store, updated by one process at a time."""
    check_address(uri)
    path = copy_of(uri)
    with process_lock(path / ".lock"):
        Mirrored(path, uri).pull_changed("*.pt")
    return path


def keep_in_store(path: Path) -> None:
    """Upload a file of the data folder to its store, if the folder is the copy of one."""
    given = os.environ.get("PCL_DATA", "")
    if is_address(given) and path.is_relative_to(copy_of(given)):
        Mirrored(copy_of(given), given).push(path.relative_to(copy_of(given)).as_posix())


def silent(*_: object) -> None:
    """Ignore all messages."""


def resolve(
    text: str,
    folder: Path,
    *,
    side: int | None = SIDE,
    may_download: bool = False,
    tell: Tell = silent,
    report: Report = silent,
) -> ImageSet:
    """Return the image set that a user names.

    Args:
        text: "auto" (CIFAR-10H if it is there or can be downloaded, else the embedded set), "cifar10h", "embedded", a
            folder with one subfolder per class, the same after `SKIP_BAD`, or an .npz or .pt file.
        folder: Folder of the caches and downloads.
        side: Pixels of a side; a user's folder is read at this size, and other sets must have it. None for a set's own.
        may_download: Whether CIFAR-10H may be downloaded if it is not in `folder`.
        tell: Called with a sentence for the user: "auto" took the embedded set, or files were left out.
        report: Called with a download's progress.

    Raises:
        ValueError: If there is no such set, or it has another size.
    """
    path = Path(os.path.expanduser(text.removeprefix(SKIP_BAD)))
    if text not in RESERVED and path.is_dir():
        bad_files = BadFiles.SKIP if text.startswith(SKIP_BAD) else BadFiles.REFUSE
        return read_folder(path, folder, bad_files, tell, side or SIDE)
    images = _made(text, folder, may_download, tell, report)
    if side is not None and images.side != side:
        raise ValueError(
            f"`task.side={side}` needs images of that size, but those of {images.name!r} have {images.side} x "
            f"{images.side} pixels; set `task.side={images.side}`, or take a folder, which is read at any size."
        )
    return images


def _made(text: str, folder: Path, may_download: bool, tell: Tell, report: Report) -> ImageSet:
    """Return an image set that has a size of its own."""
    if text == "embedded":
        return _embedded_images()
    if text in ("auto", CIFAR10H):
        return _cifar10h_or_embedded(text, folder, may_download, tell, report)
    path = Path(os.path.expanduser(text.removeprefix(SKIP_BAD)))
    if text.startswith(SKIP_BAD):
        raise ValueError(f"`--skip-bad` goes with a folder of images, but {str(path)!r} is none.")
    if path.is_file() and path.suffix == ".pt":
        return load(path)
    if path.is_file() and path.suffix == ".npz":
        name = re.sub(r"[^\w.-]", "_", path.stem)
        if name in RESERVED:
            raise ValueError(f"{path} must not be called {name!r}, the name of another image set; rename it.")
        return image_set(name, read_npz(path))
    raise ValueError(
        "`--data` must be auto, cifar10h, embedded, a folder with one subfolder per class, or an .npz or .pt file, "
        f"but got {text!r}{'' if path.exists() else ', and there is no such folder or file'}."
    )


@lru_cache
def _embedded_images() -> ImageSet:
    """Return the embedded set; do not modify it, as all trials of a worker share it."""
    return embedded().images


def _cifar10h_or_embedded(text: str, folder: Path, may_download: bool, tell: Tell, report: Report) -> ImageSet:
    path = cache_file(CIFAR10H, folder)
    if path.is_file():
        return cached(folder, report) if may_download else load(path)
    why = f"{path} is not there"
    if may_download:
        try:
            return fetch(folder, report)
        except Unreachable as error:
            why = str(error).rstrip(".")
    if text == CIFAR10H:
        raise ValueError(
            f"CIFAR-10H is not available: {why}. Run `{command('data')}` with a network or `--from FILE`, "
            "or use `--data embedded`."
        )
    tell(f"data: the embedded image set, drawn by the program, not CIFAR-10H ({why}; `{command('data')}` gets it).")
    return _embedded_images()


def cached(folder: Path, report: Report) -> ImageSet:
    """Return CIFAR-10H from the cache; a damaged cache is rebuilt and kept next to the new one.

    Raises:
        Damaged: If it is damaged and cannot be rebuilt without a network; it stays where it is.
    """
    path = cache_file(CIFAR10H, folder)
    try:
        return load(path)
    except Damaged as error:
        aside = set_aside(path, "damaged")
        try:
            images = fetch(folder, report)
        except BaseException as cause:
            if not path.exists():
                aside.rename(path)
            if isinstance(cause, Unreachable):
                raise error from None
            raise
        warn(f"The cache {path} was damaged: it is now {aside.name}, and a new one was made.")
        return images


def fetch(folder: Path, report: Report) -> ImageSet:
    """Download CIFAR-10 and CIFAR-10H into a folder and build the cache there; files already there are not repeated.

    Raises:
        Unreachable: Without a network; the next call continues where this one stopped.
    """
    from torchvision.datasets import CIFAR10  # noqa: PLC0415  seconds to import
    from torchvision.datasets.utils import extract_archive  # noqa: PLC0415  seconds to import

    probs = download(PROBS, folder, report)
    download(COUNTS, folder, report)
    try:
        arrays = read_torchvision(folder)
    except ValueError:  # not there yet, or damaged
        archive = download(Remote(CIFAR10.url, CIFAR10.filename, "md5", CIFAR10.tgz_md5), folder, report)
        extract_archive(str(archive), str(folder))
        arrays = read_torchvision(folder)
    return _kept(arrays._replace(probs=read_probs(probs)), folder)


def take(source: Path, probs: Path, folder: Path, report: Report) -> ImageSet:
    """Build the cache of CIFAR-10H in a folder from files that the user has.

    Args:
        source: An .npz with train_images, train_labels, test_images, test_labels and maybe cifar10h_probs; or a folder
            with torchvision's files.
        probs: The authors' cifar10h-probs.npy, if `source` has no shares; downloaded into `folder` if not there.
        folder: Folder of the caches and downloads.
        report: Called with a download's progress.
    """
    if not source.exists():
        raise ValueError(f"`--from` must name an .npz or a folder with torchvision's files, but {source} is not there.")
    arrays = read_torchvision(source) if source.is_dir() else read_npz(source)
    if arrays.probs.size == 0:
        if not probs.is_file():
            probs = download(PROBS, folder, report)
        if not PROBS.matches(probs):
            raise ValueError(
                f"{probs} must be the authors' {PROBS.name} (sha256 {PROBS.digest[:12]}...), but is another file or "
                "damaged; download it again, or put your own shares into the .npz as cifar10h_probs."
            )
        arrays = arrays._replace(probs=read_probs(probs))
    return _kept(arrays, folder)


def _kept(arrays: Arrays, folder: Path) -> ImageSet:
    images = cifar10h(arrays)
    save(images, cache_file(CIFAR10H, folder))
    keep_in_store(cache_file(CIFAR10H, folder))
    return images
