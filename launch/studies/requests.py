"""Typed requests of commands that run studies. Nothing here loads torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pcl.studies.session.request import RunRequest, SearchRequest


@dataclass(frozen=True)
class ImageRequest:
    """A choice of images and backbone."""

    data: str | None = None  # name or folder of the images; None for the default
    is_skip_bad: bool = False  # whether unreadable files are skipped
    weights: str | None = None  # auto, none or a file; None for the default

    def refuse(self, kind: str, what_there_is: str, takes_data: bool = False) -> None:
        """Raise a ValueError if an option for images is given where there are none."""
        data = None if takes_data else self.data
        given = {"data": data, "weights": self.weights, "skip-bad": self.is_skip_bad or None}
        for flag in [flag for flag, value in given.items() if value is not None]:
            raise ValueError(f"`--{flag}` is for {kind}, but {what_there_is}.")


@dataclass(frozen=True)
class ConfigRequest:
    """A choice of scale, fidelity, settings, seeds and images."""

    scale: str | None = None  # smoke, quick or paper; None lets the hardware decide
    fidelity: str | None = None  # profile; None for the default
    settings: Mapping[str, str] = field(default_factory=dict)  # values of `--set`, by path
    setting_texts: tuple[str, ...] = ()  # `settings` as they were typed
    seeds: tuple[int, ...] = ()  # empty for the default ones
    images: ImageRequest = ImageRequest()

    @property
    def profile(self) -> str:
        return self.fidelity or "reference"


@dataclass(frozen=True)
class StudyChoice:
    """A choice of study: a new one or one to resume."""

    name: str | None = None  # of a new one; None for a default
    resume: str | None = None  # name of an old one, "" for the latest, None for a new one
    is_plan: bool = False  # whether to print the plan and stop


@dataclass(frozen=True)
class StudyRequest:
    """A request to `launch/grid.py` or `launch/ablate.py`."""

    declared: str | None  # name or file of a space or an ablation
    study: StudyChoice
    config: ConfigRequest
    run: RunRequest
    search: SearchRequest = field(default_factory=SearchRequest)  # of a grid
    is_json: bool = False  # whether the result is printed as JSON

    def check(self) -> None:
        """Raise a ValueError if a named study does not exist."""
        warm_start = self.search.warm_start if self.search.kind == "optuna" else None  # other kinds refuse it
        for name in filter(None, (self.study.resume, warm_start)):
            self.run.storage.require_study(name)


@dataclass(frozen=True)
class ReproductionRequest:
    """A request to `launch/reproduce.py`."""

    tables: tuple[str, ...]
    figures: tuple[str, ...]
    is_all: bool  # whether every table and figure
    output: Path | None  # folder of kept results
    is_plan: bool  # whether to print the plan and stop
    config: ConfigRequest
    run: RunRequest
    is_json: bool = False  # whether the tables are printed as JSON
    rows: tuple[str, ...] = ()  # names of the only rows to train; empty for all
