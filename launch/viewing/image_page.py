"""Page of the images that a trained encoder finds most and least certain."""

from pathlib import Path

from launch.shared.command import chosen_device, require_folder, say
from launch.shared.image_choice import chosen_data, named, skipping
from pcl.studies.inspection.images import source_of, write_look
from pcl.studies.ledger.study_storage import Storage
from pcl.training.trained_encoder import TrainedEncoder


def write_page(
    *, source: str, storage: Storage, data: str | None, skip_bad: bool, seed: int | None, output: Path | None,
    device: str | None,
) -> None:  # fmt: skip
    """Write the page, also to the study's store if it has one; for the arguments see `launch/look.py`."""
    found = source_of(source, storage)
    folder = output or found.output
    require_folder("--output", folder)
    trained = TrainedEncoder.read(found.checkpoint, seed, chosen_device(device))
    asked = skipping(data, skip_bad)
    images = chosen_data(asked or trained.task.data, trained.task.side)
    is_other = asked is not None and named(asked, images) != trained.task.data
    say(f"{found.checkpoint}: seed {trained.seed}, batch {trained.best_batch:,}, {images.name}, {trained.device}")
    files = write_look(found, trained, images, is_other and not found.has_seen(images), folder)
    say(f"written: {', '.join(str(file) for file in files)}")
    if found.mirror.uri and output is None:
        found.mirror.push(*(file.name for file in files))
        say(f"kept in {found.mirror.uri}")
