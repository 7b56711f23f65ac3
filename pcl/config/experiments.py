"""The registry: each task with its encoder, its metrics, its sizes at every scale and its rules, as one `Experiment`.

A name is one of `EXPERIMENTS`, `LOSSES` or `ENCODERS`, or `FILE.py:NAME` for a user's own file (see
`pcl.config.user_files`). Such a file defines an `Experiment`, usually a built-in one with another task, or a class
derived from `Loss` or `Encoder`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, TypeVar, get_type_hints

from pcl.config.fidelity import Profile, settings_of
from pcl.config.scale import Scale
from pcl.config.suggestion import require_choice
from pcl.config.user_files import Reference, load
from pcl.encoders import ENCODERS, Encoder, EncoderConfig, MlpEncoder, ResNetEncoder
from pcl.losses import LOSSES, Loss
from pcl.metrics import names
from pcl.tasks import CifarTask, FeatureTask, Task, TaskConfig, ToyTask

Plain = str | int | float | bool
T = TypeVar("T", bound=Loss | Encoder | Task)


@dataclass(frozen=True)
class Experiment:
    """A task with its encoder, metrics and settings.

    Example:
        A user's own task, in a file of its own:

        >>> class FarApart(ToyTask):
        ...     @dataclass(frozen=True)
        ...     class Config(ToyTask.Config):
        ...         '''Settings of my own, and a `build` that makes a `FarApart`.'''
        >>> EXPERIMENT = dataclasses.replace(EXPERIMENTS["toy"], task=FarApart)
    """

    kind: str  # selects the profiles' settings: toy, images or features
    task: type[Task]  # provides data and evaluates encoders
    encoder: type[Encoder]  # the default networks
    metrics: tuple[str, ...]  # metrics that a search may optimise, the default first
    reported: tuple[str, ...]  # metrics that ablations report
    # The published sizes, by dotted path, where they differ from the parts' defaults.
    published: Mapping[str, Plain] = field(default_factory=dict)
    sizes: Mapping[Scale, Mapping[str, Plain]] = field(default_factory=dict)  # sizes at smaller scales
    # (profile, loss) -> settings at each scale, applied after the sizes; the loss "" stands for all without an entry.
    recipes: Mapping[tuple[Profile, str], Mapping[Scale, Mapping[str, Plain]]] = field(default_factory=dict)
    has_truth: bool = False  # whether the true posteriors are known
    has_images: bool = False  # whether `task.data` names images
    has_features: bool = False  # whether `task.data` names a file with `task.n_features` features per item

    def values_of(self, profile: Profile, scale: Scale, loss: str, given: Mapping[str, Any]) -> dict[str, Plain]:
        """Return a run's initial values: published sizes, then the profile's, the scale's and a recipe's values.

        `given` are values that the caller sets; those of a profile may depend on them.
        """
        recipe = self.recipes.get((profile, loss), self.recipes.get((profile, ""), {})).get(scale, {})
        return {**self.published, **settings_of(profile, loss, self.kind, given), **self.sizes.get(scale, {}), **recipe}

    def is_fused(self, encoder: EncoderConfig) -> bool:
        """Return whether the fused step supports these networks: data from `ToyTask.draw`, built-in perceptrons."""
        is_drawn_so = issubclass(self.task, ToyTask) and self.task.draw is ToyTask.draw
        return is_drawn_so and type(encoder) is MlpEncoder.Config


# Shared by all losses, so that they can be compared.
_EXACT_ON_IMAGES: dict[str, Plain] = {
    "training.n_batches": 1024, "task.augmentation": "crop_flip", "training.keep": "last", "training.eval_every": 256,
}  # fmt: skip

EXPERIMENTS = {
    "toy": Experiment(
        "toy", ToyTask, MlpEncoder,
        metrics=(
            names.KAPPA_RANK_CORR, names.KAPPA_RMSE, names.KAPPA_MAE, names.KAPPA_MEAN, names.KAPPA_MEDIAN,
            names.MU_RANK_CORR, names.MU_RMSE, names.MU_MAE, names.SPREAD_RANK_CORR, names.SPREAD_RMSE,
            names.SPREAD_MAE, *names.SPREAD100_RECOVERY, names.TRAIN_LOSS,
        ),
        reported=(
            names.KAPPA_RANK_CORR, names.KAPPA_MAE, names.KAPPA_RMSE, names.MU_RANK_CORR, names.MU_MAE,
            names.COVERAGE_90, names.KAPPA_SLOPE,
        ),
        sizes={
            Scale.SMOKE: {
                "training.n_batches": 8, "training.batch_size": 16, "training.n_negatives": 4, "training.eval_every": 4,
                "encoder.hidden": "shallow", "loss.n_samples": 4, "task.n_eval": 64,
            },
            # A shallow network at ten times the rate: the paper's takes about ten thousand batches to leave its start.
            Scale.QUICK: {
                "training.n_batches": 1000, "training.batch_size": 128, "training.n_negatives": 4,
                "training.eval_every": 250, "training.lr": 1e-3, "encoder.hidden": "shallow", "loss.n_samples": 16,
                "task.n_eval": 2000,
            },
        },
        recipes={
            # Chosen on the tuning seeds 1, 2 and 3: search_spaces/toy_exact.py and docs/exact.md have the numbers.
            (Profile.EXACT, "mc_info_nce"): {
                Scale.SMOKE: {"training.phases": "mu kappa joint:4"},
                Scale.QUICK: {
                    "training.phases": "mu:2 kappa joint:4", "training.lr": 1e-2, "training.n_batches": 2000,
                    "training.n_negatives": 256, "training.eval_every": 500, "loss.n_samples": 4,
                    "loss.log_mean": "corrected",
                },
                Scale.PAPER: {
                    "training.phases": "mu kappa joint:4", "training.lr": 1e-2, "training.n_batches": 9000,
                    "training.eval_every": 3000, "encoder.hidden": "shallow", "loss.log_mean": "corrected",
                },
            },
        },
        has_truth=True,
    ),
    "images": Experiment(
        "images", CifarTask, ResNetEncoder,
        # Never those of the test set.
        metrics=(*names.VAL, names.TRAIN_LOSS),
        reported=(names.TEST_ENTROPY, names.TEST_CROP, names.TEST_RECALL, names.TEST_REJECTION, *names.LAST.values()),
        published={
            "training.n_batches": 8_192, "training.batch_size": 128, "training.eval_every": 16,
            "loss.n_samples": 128, "loss.kappa_pos": 16.0,
        },
        sizes={
            Scale.SMOKE: {
                "training.n_batches": 4, "training.batch_size": 8, "training.n_negatives": 4, "training.eval_every": 2,
                "loss.n_samples": 4, "task.n_eval": 60, "encoder.width": 4,
            },
            # An eighth of the width at five times the rate: for two CPU cores.
            Scale.QUICK: {
                "training.n_batches": 160, "training.batch_size": 16, "training.n_negatives": 4,
                "training.eval_every": 16, "training.lr": 5e-4, "loss.n_samples": 16, "task.n_eval": 400,
                "encoder.width": 8,
            },
        },
        recipes={
            # For pretrained backbones: enough candidates to have each of ten classes many times, and as few guided
            # samples as in the toy recipe. search_spaces/cifar_exact.py chose length, phases and augmentation on fold 1
            # (docs/exact.md has all numbers). Smaller scales are not tuned.
            (Profile.EXACT, "mc_info_nce"): {
                Scale.SMOKE: {"training.n_negatives": 16, "training.phases": "joint"},
                Scale.QUICK: {"training.n_negatives": 32, "training.phases": "joint", "loss.n_samples": 8},
                Scale.PAPER: {
                    "training.n_negatives": 256, "training.phases": "mu joint", "loss.n_samples": 32,
                    **_EXACT_ON_IMAGES,
                },
            },
            (Profile.EXACT, ""): {
                Scale.SMOKE: {"training.n_negatives": 16},
                Scale.QUICK: {"training.n_negatives": 32},
                Scale.PAPER: {"training.n_negatives": 256, **_EXACT_ON_IMAGES},
            },
        },
        has_images=True,
    ),
    "features": Experiment(
        "features", FeatureTask, MlpEncoder,
        metrics=(names.VAL_RECALL, names.VAL_ENTROPY, names.TRAIN_LOSS),  # never those of the test set
        reported=(
            names.TEST_RECALL, names.TEST_ENTROPY, names.TEST_REJECTION, names.LAST_RECALL, names.LAST_ENTROPY,
            names.LAST_REJECTION,
        ),
        published={
            "training.n_batches": 8_192, "training.batch_size": 128, "training.eval_every": 256, "training.lr": 1e-3,
            "loss.n_samples": 128, "loss.kappa_pos": 16.0, "encoder.dim": 8, "encoder.hidden": "shallow",
        },
        sizes={
            Scale.SMOKE: {
                "training.n_batches": 8, "training.batch_size": 16, "training.n_negatives": 4, "training.eval_every": 4,
                "loss.n_samples": 4, "task.n_eval": 60,
            },
            Scale.QUICK: {
                "training.n_batches": 1000, "training.batch_size": 64, "training.n_negatives": 8,
                "training.eval_every": 100, "loss.n_samples": 16, "task.n_eval": 1000,
            },
        },
        has_features=True,
    ),
}  # fmt: skip


def experiment_of(name: str) -> Experiment:
    """Return the experiment of a name from `user_files.named` or `recorded`; raise a ValueError if there is none."""
    found = _found("task", name, EXPERIMENTS)
    if not isinstance(found, Experiment):
        raise ValueError(f"`task` must name an `Experiment`, but {name} is {_kind_of(found)}.")
    _checked("task", name, found.task, Task)
    return found


def loss_of(name: str) -> type[Loss]:
    """Return the loss of a name; raise a ValueError if there is none."""
    return _checked("loss", name, _found("loss", name, LOSSES), Loss)


def encoder_of(name: str, experiment: Experiment) -> type[Encoder]:
    """Return the encoder of a name, or the experiment's for an empty name; raise a ValueError if there is none."""
    found = _checked("encoder", name, _found("encoder", name, ENCODERS) if name else experiment.encoder, Encoder)
    if not hasattr(found.Config, "dim"):
        raise ValueError(f"`{found.__name__}.Config` must have a field `dim`, the dimension of the latent space.")
    return found


def images_of(task: TaskConfig, where: str) -> CifarTask.Config:
    """Return the settings of a task of images; raise a ValueError that starts with `where` for any other task."""
    if not isinstance(task, CifarTask.Config):
        raise ValueError(f"{where}, which has no images.")
    return task


def _found(part: str, name: str, ours: Mapping[str, Any]) -> Any:
    reference = Reference.of(name)
    if reference is not None:
        return load(reference)
    require_choice(part, name, [*ours, *(["FILE.py:CLASS"] if part == "encoder" else [])])
    return ours[name]


@cache
def _checked(part: str, name: str, found: object, base: type[T]) -> type[T]:
    """Return `found` if it is a class derived from `base` whose settings can be dotted paths, or raise a ValueError."""
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ValueError(f"`{part}` must name a class derived from `{base.__name__}`, but {name} is {_kind_of(found)}.")
    config: Any = getattr(found, "Config", None)
    if not getattr(getattr(config, "__dataclass_params__", None), "frozen", False):
        raise ValueError(f"`{found.__name__}` must have its settings in a frozen dataclass `Config` inside it.")
    if "Config" not in vars(found):
        raise ValueError(
            f"`{found.__name__}` must have a `Config` of its own that builds it: its base class's builds another class."
        )
    kinds = get_type_hints(config)
    for setting in dataclasses.fields(config):
        kind = kinds[setting.name]
        if not (isinstance(kind, type) and (kind in (str, int, float, bool) or issubclass(kind, Enum))):
            raise ValueError(f"`{part}.{setting.name}` must be text, a number, true or false, or an enum, not {kind}.")
        if setting.default is dataclasses.MISSING:
            raise ValueError(f"`{part}.{setting.name}` must have a default in `{found.__name__}.Config`.")
    return found


def _kind_of(found: object) -> str:
    return f"the class `{found.__name__}`" if isinstance(found, type) else f"of the type {type(found).__name__}"
