"""RunConfig: one training run as a frozen record of the parts' own Configs, addressed by dotted paths.

A path such as `loss.n_samples` names a setting everywhere: on the command line, in a search space, in records. Text
and numbers become the field's own type here, at the boundary; unknown paths fail with the nearest right one.
"""

import dataclasses
import difflib
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from itertools import pairwise
from typing import Any, get_type_hints

from pcl.config.fidelity import Profile, settings_of
from pcl.config.schedule import Phases, Trained, TrainingConfig
from pcl.encoders import Backbone, KappaRange, MlpEncoder, ResNetEncoder
from pcl.losses import ELK, LOSSES, ElkNegatives, ElkNormalizer, LossConfig, MCInfoNCE, PartnerSamples
from pcl.tasks import CifarTask, Family, NegativeRule, Negatives, PositiveRule, ToyTask

Plain = str | int | float | bool
TaskConfig = ToyTask.Config | CifarTask.Config
EncoderConfig = MlpEncoder.Config | ResNetEncoder.Config

# Each task with its encoder, and the published sizes where they are not the parts' defaults.
_TASKS: dict[str, tuple[TaskConfig, EncoderConfig, dict[str, Plain]]] = {
    "toy": (ToyTask.Config(), MlpEncoder.Config(), {}),
    "images": (
        CifarTask.Config(), ResNetEncoder.Config(),
        {
            "training.n_batches": 8_192, "training.batch_size": 128, "training.eval_every": 16,
            "loss.n_samples": 128, "loss.kappa_pos": 16.0,
        },
    ),
}  # fmt: skip


class Scale(Enum):
    """The size of a run; it changes lengths, counts and the width of networks, never what is compared."""

    SMOKE = "smoke"  # seconds, for tests
    QUICK = "quick"  # half a minute on two CPU cores
    PAPER = "paper"  # the published sizes


_SCALES: dict[str, dict[Scale, dict[str, Plain]]] = {
    "toy": {
        Scale.SMOKE: {
            "training.n_batches": 8, "training.batch_size": 16, "training.n_negatives": 4, "training.eval_every": 4,
            "encoder.hidden": "shallow", "loss.n_samples": 4, "task.n_eval": 64,
        },
        # A shallow network at ten times the rate: the paper's needs about ten thousand batches to leave its start.
        Scale.QUICK: {
            "training.n_batches": 1000, "training.batch_size": 128, "training.n_negatives": 4,
            "training.eval_every": 250, "training.lr": 1e-3, "encoder.hidden": "shallow", "loss.n_samples": 16,
            "task.n_eval": 2000,
        },
        Scale.PAPER: {},
    },
    "images": {
        Scale.SMOKE: {
            "training.n_batches": 4, "training.batch_size": 8, "training.n_negatives": 4, "training.eval_every": 2,
            "loss.n_samples": 4, "task.n_eval": 60, "encoder.width": 4,
        },
        # An eighth of the width at five times the rate: for two CPU cores.
        Scale.QUICK: {
            "training.n_batches": 160, "training.batch_size": 16, "training.n_negatives": 4, "training.eval_every": 16,
            "training.lr": 5e-4, "loss.n_samples": 16, "task.n_eval": 400, "encoder.width": 8,
        },
        Scale.PAPER: {},
    },
}  # fmt: skip


@dataclass(frozen=True)
class RunConfig:
    """Everything that defines a run, except its seed and the device.

    Attributes:
        profile: The fidelity profile it started from.
        scale: The scale it started from.
        loss_name: One of `LOSSES`.
        task: The data.
        encoder: The networks.
        loss: The loss.
        training: The schedule.
    """

    profile: Profile = Profile.PAPER
    scale: Scale = Scale.PAPER
    loss_name: str = "mc_info_nce"
    task: TaskConfig = field(default_factory=ToyTask.Config)
    encoder: EncoderConfig = field(default_factory=MlpEncoder.Config)
    loss: LossConfig = field(default_factory=MCInfoNCE.Config)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        if isinstance(self.task, ToyTask.Config) is not isinstance(self.encoder, MlpEncoder.Config):
            raise ValueError("The task 'toy' needs the encoder `MlpEncoder`, and 'images' `ResNetEncoder`.")
        is_integrated = isinstance(self.loss, MCInfoNCE.Config) and self.loss.partners is PartnerSamples.INTEGRATED
        sources = {self.training.negatives_at(phase) for phase in range(len(self.training.phases))}
        if is_integrated and Negatives.IN_BATCH in sources:
            raise ValueError("`loss.partners=integrated` stands for infinitely many negatives; in-batch ones are one.")

        has_common = any(source.are_common for source in sources)
        if isinstance(self.task, CifarTask.Config) and has_common:
            raise ValueError("Images have negatives of each anchor's own, by its class: shared ones are not possible.")
        is_rejecting = isinstance(self.task, ToyTask.Config) and self.task.negatives is NegativeRule.REJECT_POSITIVES
        is_by_weight = isinstance(self.task, ToyTask.Config) and self.task.positives is PositiveRule.VMF
        if Negatives.POOL in sources and not is_by_weight:
            raise ValueError("Negatives from the pool need `task.positives=vmf`: only those are chosen by weight.")
        if is_rejecting and has_common:
            raise ValueError("`task.negatives=reject_positives` needs negatives of each anchor's own, not shared ones.")
        if isinstance(self.loss, ELK.Config) and self.loss.normalizer is ElkNormalizer.FITTED:
            ELK.require_fitted(self.encoder.dim)
        trained = [phase.trained for phase in self.training.phases]
        is_mu_first = trained[0] is Trained.MU
        is_mu_again = any(a is not Trained.MU and b is Trained.MU for a, b in pairwise(trained))
        is_kept = isinstance(self.encoder, MlpEncoder.Config) and self.encoder.backbone is Backbone.SHARED_IN_RANGE
        if is_kept and (not is_mu_first or is_mu_again):
            raise ValueError(
                "`encoder.backbone=shared_in_range` needs `training.phases` in which mu comes first, and not again "
                "after kappa: kappa stays in the range that it began with until it is trained."
            )
        if self.loss_name == "info_nce" and any(phase.trained is Trained.KAPPA for phase in self.training.phases):
            raise ValueError("InfoNCE has no gradient in kappa: `training.phases` must not have a phase 'kappa'.")

    @property
    def task_name(self) -> str:
        """Name of the task: toy or images."""
        return "toy" if isinstance(self.task, ToyTask.Config) else "images"

    @property
    def first_kappa_range(self) -> tuple[float, float]:
        """Range of kappa-hat before anything trains it, in the controlled experiment."""
        assert isinstance(self.task, ToyTask.Config)
        assert isinstance(self.encoder, MlpEncoder.Config)
        is_fixed = self.encoder.kappa_range is KappaRange.SIXTEEN_TO_32 or self.task.family is Family.DIRAC
        return (16.0, 32.0) if is_fixed else (self.task.kappa_min, self.task.kappa_max)

    @classmethod
    def of(
        cls,
        values: Mapping[str, Any] | None = None,
        *,
        loss: str = "mc_info_nce",
        profile: str = "paper",
        scale: str = "paper",
        task: str = "toy",
    ) -> "RunConfig":
        """Return a configuration from a task, a profile, a scale and single values.

        Settings of a profile or a scale that the task, its encoder or the loss do not have are left out.

        Args:
            values: Dotted path -> value, applied last. Text is read as the field's type.
            loss: One of `LOSSES`.
            profile: A fidelity profile.
            scale: A scale.
            task: "toy" or "images".

        Example:
            >>> RunConfig.of({"loss.n_samples": "16"}, profile="reference").loss.n_samples
            16
        """
        _require_choice("loss", loss, list(LOSSES))
        _require_choice("profile", profile, [member.value for member in Profile])
        _require_choice("scale", scale, [member.value for member in Scale])
        _require_choice("task", task, list(_TASKS))
        if task == "images" and profile == Profile.EXACT.value:
            raise ValueError("The profile 'exact' is of a known truth, which images lack; take paper or reference.")
        # A loss without a gradient in kappa has only one phase.
        training = TrainingConfig(phases=Phases.parse("mu")) if loss == "info_nce" else TrainingConfig()
        data, encoder, published = _TASKS[task]
        base = cls(Profile(profile), Scale(scale), loss, data, encoder, LOSSES[loss].Config(), training)
        settings = {**published, **settings_of(Profile(profile), loss, task), **_SCALES[task][Scale(scale)]}
        known = base.paths()
        chosen = {path: value for path, value in settings.items() if path in known}
        return base.with_values({**chosen, **(values or {})})

    def with_values(self, values: Mapping[str, Any]) -> "RunConfig":
        """Return the configuration with values at dotted paths replaced; all are checked together."""
        known = self.paths()
        parts: dict[str, dict[str, Any]] = {}
        for path, value in values.items():
            read = _read(path, value, known)
            part, name = path.split(".")
            parts.setdefault(part, {})[name] = read
        replaced: dict[str, Any] = {
            part: dataclasses.replace(getattr(self, part), **new) for part, new in parts.items()
        }
        return dataclasses.replace(self, **replaced)

    def read(self, path: str, value: Any) -> Plain:
        """Return a value converted to the path's type, plain; its fit with other settings is not checked."""
        return _plain(_read(path, value, self.paths()))

    def paths(self) -> dict[str, type]:
        """Return every dotted path and the type of its value."""
        return {
            f"{part}.{name}": kind
            for part in ("task", "encoder", "loss", "training")
            for name, kind in get_type_hints(type(getattr(self, part))).items()
        }

    def flat(self) -> dict[str, Plain]:
        """Return every setting by its dotted path, as plain values; `from_flat` is the inverse."""
        head: dict[str, Plain] = {
            "profile": self.profile.value, "scale": self.scale.value, "loss_name": self.loss_name,
            "task_name": self.task_name,
        }  # fmt: skip
        return head | {
            f"{part}.{f.name}": _plain(getattr(getattr(self, part), f.name))
            for part in ("task", "encoder", "loss", "training")
            for f in fields(getattr(self, part))
        }

    @classmethod
    def from_flat(cls, flat: Mapping[str, Any]) -> "RunConfig":
        """Create a configuration from `flat()`, which once had no `task_name` and no `training.optimizer`."""
        rest = {"task_name": "toy", "training.optimizer": "adam", **flat}
        task = str(rest.pop("task_name"))
        head = {name: str(rest.pop(name, "")) for name in ("profile", "scale", "loss_name")}
        _require_choice("loss_name", head["loss_name"], list(LOSSES))
        return cls.of(rest, loss=head["loss_name"], profile=head["profile"], scale=head["scale"], task=task)

    def fingerprint(self) -> str:
        """Return sixteen hexadecimal digits, equal for two configurations only if all settings are equal."""
        text = json.dumps(self.flat(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def loss_with(self, source: Negatives) -> LossConfig:
        """Return the loss for a source of negatives: the released code rolls ELK's positives only if none are drawn."""
        if isinstance(self.loss, ELK.Config) and source is not Negatives.IN_BATCH:
            return dataclasses.replace(self.loss, negatives=ElkNegatives.GIVEN)
        return self.loss


def _require_choice(name: str, value: str, choices: list[str]) -> None:
    if value not in choices:
        near = difflib.get_close_matches(value, choices, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, but got {value!r}.{hint}")


def _plain(value: Any) -> Plain:
    if isinstance(value, Enum):
        return str(value.value)
    return str(value) if isinstance(value, Phases) else value


def _read(path: str, value: Any, known: Mapping[str, type]) -> Any:
    """Return a value of the path's type, from text or from a number that is exactly representable in it."""
    if path not in known:
        near = difflib.get_close_matches(path, list(known), n=1)
        hint = f" Did you mean {near[0]!r}?" if near else f" Known are {', '.join(known)}."
        raise ValueError(f"Unknown path {path!r}.{hint}")
    kind = known[path]
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    try:
        return _converted(value, kind)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        if kind is Phases:
            raise ValueError(f"`{path}`: {error}") from None
        rule = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind)
        if issubclass(kind, Enum):
            rule = f"one of {', '.join(str(member.value) for member in kind)}"
        raise ValueError(f"`{path}` must be {rule}, but got {value!r}.") from None


def _converted(value: Any, kind: type) -> Any:
    if kind is Phases:
        return Phases.parse(str(value))
    if issubclass(kind, Enum):
        return kind(value)
    if kind is bool:
        return {"true": True, "false": False}[str(value).lower()]
    if isinstance(value, bool):
        raise TypeError
    number = float(value)
    if kind is int:
        if number != int(number):
            raise ValueError
        return int(number)
    return number
