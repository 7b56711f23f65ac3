"""Typed requests of commands that run studies. Nothing here loads torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcl.studies.session.request import RunRequest, SearchRequest


@dataclass(frozen=True)
class ImageRequest:
    """A choice of images and backbone.

    Attributes:
        data: Name or folder of the images; None for the default.
        is_skip_bad: Whether files that cannot be read are left out.
        weights: auto, none or a file; None for the default.
    """

    data: str | None = None
    is_skip_bad: bool = False
    weights: str | None = None

    def refuse(self, kind: str, what_there_is: str) -> None:
        """Raise a ValueError if something is asked for where there are no images.

        Args:
            kind: For what images are.
            what_there_is: Why there are none.
        """
        given = {"data": self.data, "weights": self.weights, "skip-bad": self.is_skip_bad or None}
        for flag in [flag for flag, value in given.items() if value is not None]:
            raise ValueError(f"`--{flag}` is for {kind}, but {what_there_is}.")


@dataclass(frozen=True)
class ConfigRequest:
    """A choice of scale, fidelity, settings, seeds and images.

    Attributes:
        scale: smoke, quick or paper; None lets the hardware decide.
        fidelity: Profile; None for the default.
        settings: Values of `--set`, by path.
        setting_texts: The same as they were given.
        seeds: Empty for the default ones.
        images: Of what.
    """

    scale: str | None = None
    fidelity: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    setting_texts: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    images: ImageRequest = ImageRequest()

    @property
    def profile(self) -> str:
        """The fidelity profile."""
        return self.fidelity or "reference"


@dataclass(frozen=True)
class StudyChoice:
    """A choice of study: a new one, or one to resume.

    Attributes:
        name: Of a new one; None for a default.
        resume: Name of an old one, "" for the latest, None for a new one.
        is_plan: Whether to say what would run, and stop.
    """

    name: str | None = None
    resume: str | None = None
    is_plan: bool = False


@dataclass(frozen=True)
class GridRequest:
    """A request to `launch/grid.py`.

    Attributes:
        space: Name or file.
        study: Which study.
        config: Of which runs.
        search: How it is searched.
        run: How and where it runs.
        is_json: Whether the result is printed as JSON.
    """

    space: str | None
    study: StudyChoice
    config: ConfigRequest
    search: SearchRequest
    run: RunRequest
    is_json: bool = False


@dataclass(frozen=True)
class AblationRequest:
    """A request to `launch/ablate.py`.

    Attributes:
        ablation: Name or file.
        study: Which study.
        config: Of which runs.
        run: How and where it runs.
    """

    ablation: str | None
    study: StudyChoice
    config: ConfigRequest
    run: RunRequest


@dataclass(frozen=True)
class ReproductionRequest:
    """A request to `launch/reproduce.py`.

    Attributes:
        tables: Names.
        figures: Names.
        is_all: Whether every table and figure.
        output: Folder of results that are kept.
        is_plan: Whether to say what would run, and stop.
        config: Of which runs.
        run: How and where they run.
    """

    tables: tuple[str, ...]
    figures: tuple[str, ...]
    is_all: bool
    output: Path | None
    is_plan: bool
    config: ConfigRequest
    run: RunRequest
