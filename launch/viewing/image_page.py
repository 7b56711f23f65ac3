"""The page of images that a trained encoder finds certain or not."""

from dataclasses import dataclass
from pathlib import Path

from launch.shared.command import chosen_device, say
from launch.shared.image_choice import chosen_data, named, skipping
from pcl.studies.inspection.images import source_of, write_look
from pcl.studies.ledger.study_storage import Storage
from pcl.training.trained_encoder import TrainedEncoder


@dataclass(frozen=True)
class LookRequest:
    """A request to `launch/look.py`.

    Attributes:
        source: A study or a checkpoint.
        storage: Where studies are kept.
        data: Other images than the run's own.
        skip_bad: Leave out files that are no images.
        seed: Which seed of the checkpoint; None for the first that has not failed.
        output: Folder of the page; None for the default.
        device: cpu or cuda.
    """

    source: str
    storage: Storage
    data: str | None
    skip_bad: bool
    seed: int | None
    output: Path | None
    device: str | None


def write_page(request: LookRequest) -> None:
    """Write the page, and keep it in the store where the study is in one."""
    source = source_of(request.source, request.storage)
    output = request.output or source.output
    if output.exists() and not output.is_dir():
        raise ValueError(f"`--output` must name a folder, but {output} is a file.")
    trained = TrainedEncoder.read(source.checkpoint, request.seed, chosen_device(request.device))
    asked = skipping(request.data, request.skip_bad)
    data = chosen_data(asked or trained.task.data)
    is_other = asked is not None and named(asked, data) != trained.task.data
    say(f"{source.checkpoint}: seed {trained.seed}, batch {trained.best_batch:,}, {data.name}, {trained.device}")
    files = write_look(source, trained, data, is_other and not source.has_seen(data), output)
    say(f"written: {', '.join(str(file) for file in files)}")
    if source.mirror.uri and request.output is None:
        source.mirror.push(*(file.name for file in files))
        say(f"kept in {source.mirror.uri}")
