"""The typed request of `launch/train.py`. Nothing here loads torch."""

from dataclasses import dataclass
from pathlib import Path

from launch.shared.command import settings
from pcl.config.dotted_paths import check_values
from pcl.config.user_files import Reference


@dataclass(frozen=True)
class TrainRequest:
    """A request to `launch/train.py`, which describes each option; None and False mean that an option is not given."""

    config: Path | None = None
    task: str | None = None
    data: str | None = None
    skip_bad: bool = False
    weights: str | None = None
    loss: str | None = None
    encoder: str | None = None
    fidelity: str | None = None
    scale: str | None = None
    overrides: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (4,)
    device: str | None = None
    is_plain: bool = False
    checkpoint: Path | None = None
    is_fresh: bool = False
    calibrate: bool = False
    is_json: bool = False
    show_config: bool = False

    def check(self) -> None:
        """Raise a ValueError for a misspelt setting; settings of users' files are checked when these are read."""
        names = filter(None, (self.task, self.loss, self.encoder))
        if self.config is None and not any(map(Reference.of, names)):
            check_values(settings(self.overrides))
