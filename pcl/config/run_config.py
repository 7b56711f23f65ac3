"""RunConfig: one training run as a frozen record of the parts' own Configs, addressed by dotted paths.

A path such as `loss.n_samples` names a setting everywhere: on the command line, in a search space, in records. Text
and numbers become the field's type here, at the boundary; an unknown path raises an error that suggests a known one.
"""

import dataclasses
import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from functools import lru_cache
from typing import Any, get_type_hints

from pcl.config.dotted_paths import read_value
from pcl.config.experiments import (
    EXPERIMENTS,
    Experiment,
    Plain,
    encoder_of,
    experiment_of,
    loss_of,
)
from pcl.config.fidelity import RELEASE, Profile, release_settings
from pcl.config.scale import Scale
from pcl.config.schedule import Phases, Trained, TrainingConfig
from pcl.config.suggestion import require_choice
from pcl.config.user_files import KEYS, named, portable, recorded, short
from pcl.encoders import EncoderConfig, MlpEncoder
from pcl.losses import LossConfig, MCInfoNCE
from pcl.tasks import TaskConfig, ToyTask
from pcl.tasks.base import ADDED_LATER

__all__ = ["EXPERIMENTS", "Plain", "RunConfig", "Scale"]

_PARTS = ("task", "encoder", "loss", "training")
_type_hints: Callable[[type], dict[str, Any]] = lru_cache(get_type_hints)  # needed at every reading of a configuration


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run, except its seed and the device."""

    profile: Profile = Profile.PAPER  # the fidelity profile it started from
    scale: Scale = Scale.PAPER  # the scale it started from
    loss_name: str = "mc_info_nce"  # a name in `LOSSES`, or a user's own; see `pcl.config.experiments` for names
    task: TaskConfig = field(default_factory=ToyTask.Config)
    encoder: EncoderConfig = field(default_factory=MlpEncoder.Config)
    loss: LossConfig = field(default_factory=MCInfoNCE.Config)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    task_name: str = "toy"  # a name in `EXPERIMENTS`, or a user's own
    encoder_name: str = ""  # a name in `ENCODERS`, or a user's own; empty for the experiment's

    def __post_init__(self) -> None:
        sources = {self.training.negatives_at(phase) for phase in range(len(self.training.phases))}
        self.encoder.check(self.task.inputs)
        self.loss.check(self.encoder.dim, sources)
        self.task.check_negatives(sources)
        if not self.loss.trains_kappa and any(phase.trained is Trained.KAPPA for phase in self.training.phases):
            name = type(self.loss).__qualname__.removesuffix(".Config")
            raise ValueError(f"{name} has no gradient in kappa: `training.phases` must not have a phase 'kappa'.")

    @property
    def experiment(self) -> Experiment:
        """The experiment that `task_name` names."""
        return experiment_of(self.task_name)

    @property
    def label(self) -> str:
        """Task, loss, named encoder, profile and scale joined by hyphens, for file names."""
        parts = [self.task_name, self.loss_name, *([self.encoder_name] if self.encoder_name else [])]
        return "-".join([*map(short, parts), self.profile.value, self.scale.value])

    @classmethod
    def of(
        cls,
        values: Mapping[str, Any] | None = None,
        *,
        loss: str = "mc_info_nce",
        profile: str = "paper",
        scale: str = "paper",
        task: str = "toy",
        encoder: str = "",
    ) -> "RunConfig":
        """Return a configuration from a task, a profile, a scale and single values.

        Settings of a profile or a scale that the task, its encoder or the loss does not have are left out.

        Args:
            values: Dotted path -> value, applied last. Text is read as the field's type.
            loss: A name in `LOSSES`, or FILE.py:CLASS of a user's own.
            profile: Name of the fidelity profile.
            scale: Name of the scale.
            task: A name in `EXPERIMENTS`, or FILE.py:NAME of a user's own.
            encoder: A name in `ENCODERS`, or FILE.py:CLASS of a user's own; empty for the experiment's.

        Example:
            >>> RunConfig.of({"loss.n_samples": "16"}, profile="reference").loss.n_samples
            16
        """
        require_choice("profile", profile, [member.value for member in Profile])
        require_choice("scale", scale, [member.value for member in Scale])
        loss, task, encoder = named(loss), named(task), named(encoder)
        loss_config, experiment = loss_of(loss).Config(), experiment_of(task)
        base = cls(
            Profile(profile), Scale(scale), loss, experiment.task.Config(), encoder_of(encoder, experiment).Config(),
            loss_config, TrainingConfig() if loss_config.trains_kappa else TrainingConfig(phases=Phases.parse("mu")),
            task, encoder,
        )  # fmt: skip
        known, given = base.paths(), values or {}
        read = {path: base.read(path, value) for path, value in given.items() if path in known}
        settings = experiment.values_of(Profile(profile), Scale(scale), loss, read)
        chosen = {path: value for path, value in settings.items() if path in known}
        return base.with_values({**chosen, **given})

    def with_values(self, values: Mapping[str, Any]) -> "RunConfig":
        """Return the configuration with values at dotted paths replaced; all are checked together.

        `training.release_version` also replaces the settings that it implies, except those in `values`.
        """
        known = self.paths()
        if RELEASE in values:
            version = read_value(RELEASE, values[RELEASE], known)
            values = {**release_settings(version.value, self.experiment.kind), **values}
        parts: dict[str, dict[str, Any]] = {}
        for path, value in values.items():
            read = read_value(path, value, known)
            part, name = path.split(".")
            parts.setdefault(part, {})[name] = read
        replaced: dict[str, Any] = {
            part: dataclasses.replace(getattr(self, part), **new) for part, new in parts.items()
        }
        return dataclasses.replace(self, **replaced)

    def read(self, path: str, value: Any) -> Plain:
        """Return a value as plain data of the path's type; whether it fits other settings is not checked."""
        return _plain(read_value(path, value, self.paths()))

    def paths(self) -> dict[str, type]:
        """Return every dotted path and the type of its value."""
        return {
            f"{part}.{f.name}": kinds[f.name]
            for part in _PARTS
            for kinds in [_type_hints(type(getattr(self, part)))]
            for f in fields(getattr(self, part))
        }

    def flat(self) -> dict[str, Plain]:
        """Return settings by their dotted paths, as plain values; `from_flat` is the inverse.

        Settings that were added later appear only if they differ from their default, so that records of runs without
        them, and hence their keys, stay the same.
        """
        head: dict[str, Plain] = {
            "profile": self.profile.value, "scale": self.scale.value, "loss_name": self.loss_name,
            "task_name": self.task_name,
        }  # fmt: skip
        if self.encoder_name:
            head["encoder_name"] = self.encoder_name
        return head | {
            f"{part}.{f.name}": _plain(value)
            for part in _PARTS
            for f in fields(getattr(self, part))
            for value in [getattr(getattr(self, part), f.name)]
            if not (f.metadata == ADDED_LATER and value == f.default)
        }

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any]) -> "RunConfig":
        """Create a configuration from `flat()`, or from some of its entries.

        Raises:
            ValueError: If that is not possible, or an entry names a user's file that was not named in this process.
        """
        rest = {"task_name": "toy", **flat}
        profile, scale = (str(rest.pop(name, "")) for name in ("profile", "scale"))
        loss, task, encoder = (recorded(str(rest.pop(name, ""))) for name in KEYS)
        config = cls.of(rest, loss=loss, profile=profile, scale=scale, task=task, encoder=encoder)
        # `flat` leaves out settings added later that are at their default, but a recipe may set them otherwise.
        reset = {path: default for path, default in config._changed_later().items() if path not in rest}
        is_whole = config.flat().keys() - reset.keys() <= flat.keys()
        return config.with_values(reset) if reset and is_whole else config

    def _changed_later(self) -> dict[str, Any]:
        """Return the defaults of settings that were added later and differ from them."""
        return {
            f"{part}.{f.name}": f.default
            for part in _PARTS
            for f in fields(getattr(self, part))
            if f.metadata == ADDED_LATER and getattr(getattr(self, part), f.name) != f.default
        }

    def fingerprint(self) -> str:
        """Return sixteen hexadecimal digits, equal for two configurations only if all settings are equal."""
        text = json.dumps(portable(self.flat()), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _plain(value: Any) -> Plain:
    if isinstance(value, Enum):
        return str(value.value)
    is_infinite = isinstance(value, float) and math.isinf(value)  # JSON has no infinity; its text is read back
    return str(value) if isinstance(value, Phases) or is_infinite else value
