"""Application of a trained encoder to a folder of images, with progress."""

import json
import re
import time
from pathlib import Path

import torch

from launch.shared.command import chosen_device, require_folder, say
from launch.shared.progress_line import Progress
from pcl.studies.inspection.application import BATCH, Applied, Neighbourhood, applied, neighbourhood
from pcl.studies.inspection.application_files import SUMMARY, UNREADABLE, write_files
from pcl.studies.inspection.application_page import Origin
from pcl.studies.inspection.image_stream import ImageFolder
from pcl.studies.inspection.images import source_of
from pcl.studies.ledger.study_storage import Storage
from pcl.training.trained_encoder import TrainedEncoder

_FOLDER = "apply"  # next to a checkpoint or in a study's folder


def apply_to_folder(
    *, source: str, folder: Path, storage: Storage, seed: int | None, batch_size: int | None, output: Path | None,
    device: str | None,
) -> None:  # fmt: skip
    """Write tables and a page, also to the study's store if it has one; for the arguments see `launch/apply.py`."""
    images = ImageFolder.of(folder)
    name = folder.resolve().name or "images"
    found = source_of(source, storage)
    folder_name = re.sub(r"[^\w.-]", "_", name)  # valid in a store's address too
    place = output or found.output.with_name(_FOLDER) / folder_name
    require_folder("--output", place)
    if place.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"`--output` must not lie in the folder of images, but {place} does.")
    if output is None:
        _require_same_folder(place, folder)
    trained = TrainedEncoder.read(found.checkpoint, seed, chosen_device(device))
    say(f"{found.checkpoint}: seed {trained.seed}, {len(images.files):,} files in {folder}, {trained.device}")
    result = _encoded(trained, images, batch_size or BATCH)
    files = write_files(place, Origin(found.name, name), result, _compared(result, trained.device))
    say(f"written: {', '.join(str(file) for file in files)}")
    if found.mirror.uri and output is None:
        mirror = found.mirror.beside(_FOLDER).inside(folder_name)
        mirror.push(*(file.name for file in files))
        say(f"kept in {mirror.uri}")


def _require_same_folder(place: Path, folder: Path) -> None:
    """Raise a ValueError if there are results of another folder with the same name."""
    try:
        other = json.loads((place / SUMMARY).read_text()).get("folder", "")
    except (OSError, ValueError):
        return  # none, or none that name their folder
    if other and other != str(folder.resolve()):
        raise ValueError(f"{place} has the results of {other}; name another folder with `--output`.")


class _Counter:
    """Count of finished files or images, for a progress line."""

    def __init__(self) -> None:
        self.done = 0

    def tell(self, done: int) -> None:
        self.done = done

    def progress(self, total: int, unit: str, words: str) -> Progress:
        """Return the progress line; `words` say what is counted."""
        line = Progress(lambda: self.done, total, lambda: "nothing was written", unit)
        line.shown = words
        return line


def _encoded(trained: TrainedEncoder, images: ImageFolder, batch_size: int) -> Applied:
    counter, side = _Counter(), trained.task.side
    started = time.perf_counter()
    with counter.progress(len(images.files), "file", "files read and encoded"):
        found = applied(trained.encode, images, side, counter.tell, batch_size)
    seconds = time.perf_counter() - started
    say(f"{len(found.places):,} images in {seconds:.1f} s, {len(images.files) / seconds:,.0f} files a second")
    if found.unreadable:
        say(f"{found.unreadable_told} {UNREADABLE} names all.")
    return found


def _compared(found: Applied, device: torch.device) -> Neighbourhood | None:
    if len(found.places) < 2:
        return None
    counter = _Counter()
    with counter.progress(len(found.places), "image", "images compared with all others"):
        return neighbourhood(found, counter.tell, device)
