"""Ablations as data: one baseline, and variants that differ from it in the setting under study.

An ablation is one file that defines `ABLATION`: see search_spaces/ablations/ for the paper's own.

Common random numbers. All variants have the same seeds. Whatever depends on a seed is drawn by purpose (see
`pcl.mathematics.random_streams`), so that variants have the same true networks, probes, evaluation inputs, folds,
crops and initial weights, as long as these have the same shapes: another `task.dim` or `encoder.dim` gives other
networks. The random numbers of training (inputs, latents, samples of the loss) come from one generator for each set of
seeds, in the same initial state. Variants that draw as many numbers per batch share them to the end. Others
(`loss.n_samples`, `training.n_negatives`, another loss or sampler) diverge on a CPU after the first batch, but still
share truth, evaluation and initial weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pcl.config.experiments import Experiment, experiment_of
from pcl.config.fidelity import SETTINGS, TO_THE_END, Profile
from pcl.config.run_config import Plain, RunConfig
from pcl.config.suggestion import require_choice
from pcl.config.user_files import identity_of, named
from pcl.metrics.names import larger_is_better
from pcl.studies.space.axes import negatives_axis
from pcl.studies.space.declarations import ABLATIONS, check_declared, digest
from pcl.studies.space.search_space import Mode, Objective
from pcl.studies.space.trial import Trial

STAGE = "ablation"
OWN = "it is the baseline's own"
SEEDS = (4, 5, 6, 7, 8)  # the paper's report seeds, as an ablation selects nothing
_N_SEEDS = {"paper": 5, "quick": 3, "smoke": 2}  # intervals need at least two
_WEIGHTS = "encoder.weights"


@dataclass(frozen=True)
class Variant:
    """Settings that are varied together."""

    settings: Mapping[str, Plain] = field(default_factory=dict)  # values by dotted path
    loss: str = ""  # one of `LOSSES`; the ablation's if it is empty
    # Further settings at the scale `paper` only, such as sizes that fit a GPU's memory
    settings_at_paper: Mapping[str, Plain] = field(default_factory=dict)
    is_from_scratch: bool = False  # for images: whether to train without pretrained weights
    # Settings of the release's scripts where the text differs, under the profile `reference` at that scale
    in_scripts: Mapping[str, Plain] = field(default_factory=dict)
    encoder: str = ""  # one of `ENCODERS`; the ablation's if it is empty

    def __post_init__(self) -> None:
        for part in ("loss", "encoder"):
            object.__setattr__(self, part, named(getattr(self, part)))  # relative paths: to the file that names them


class Cells(NamedTuple):
    """The trials of an ablation."""

    trials: dict[str, Trial]  # trials by label, the baseline first
    left_out: dict[str, str]  # reasons why other variants have no trial, by label


@dataclass(frozen=True)
class Ablation:
    """A question, and the trials that answer it.

    Attributes:
        name: Name of the study.
        question: The question, in a sentence.
        axis: What is varied: a dotted path, or another name.
        baseline: Label of the variant that others are compared with.
        variants: Variants by label.
        loss: One of `LOSSES`, or FILE.py:CLASS of a user's own; for variants that name none.
        task: One of `EXPERIMENTS`, or FILE.py:NAME of a user's own.
        base: Settings of all variants, applied after profile and scale.
        metrics: Metrics to report; by default the task's usual ones.
        encoder: One of `ENCODERS`, or FILE.py:CLASS of a user's own; the experiment's if it is empty.

    Raises:
        ValueError: If the baseline is not a variant, or a variant is not a possible run.

    Example:
        >>> ablation = Ablation("lr", "How fast?", "training.lr", "0.1", values("training.lr", 0.1, 0.2))
        >>> [trial.label for trial in ablation.cells("paper", "smoke", SEEDS).trials.values()]
        ['lr=0.1', 'lr=0.2']
    """

    name: str
    question: str
    axis: str
    baseline: str
    variants: Mapping[str, Variant]
    loss: str = "mc_info_nce"
    task: str = "toy"
    base: Mapping[str, Plain] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()
    encoder: str = ""

    def __post_init__(self) -> None:
        for part in ("loss", "task", "encoder"):
            object.__setattr__(self, part, named(getattr(self, part)))
        check_declared("An ablation", self.name)
        if self.baseline not in self.variants or len(self.variants) < 2:
            raise ValueError(
                f"The ablation {self.name!r} must have its baseline {self.baseline!r} and others among its variants, "
                f"but has {', '.join(self.variants) or 'none'}."
            )
        for label, variant in self.variants.items():
            reader = RunConfig.of(None, **self._names(variant))
            sizes = {**variant.settings_at_paper, **variant.in_scripts}
            for path, value in {**self.base, **variant.settings, **sizes}.items():
                try:
                    reader.read(path, value)
                except ValueError as error:
                    raise ValueError(f"The ablation {self.name!r}, variant {label!r}: {error}") from None

    @property
    def experiment(self) -> Experiment:
        return experiment_of(self.task)

    @property
    def readers(self) -> list[RunConfig]:
        """Configurations that give the type of each setting: one for each loss and encoder."""
        names = [self._names(variant) for variant in (Variant(), *self.variants.values())]
        return [RunConfig.of(None, **one) for index, one in enumerate(names) if one not in names[:index]]

    @property
    def objective(self) -> Objective:
        """Metric that is shown while it runs."""
        metric = self.experiment.metrics[0]
        return Objective(metric, Mode.MIN if larger_is_better(metric) is False else Mode.MAX)

    @property
    def shown_metrics(self) -> tuple[str, ...]:
        return self.metrics or self.experiment.reported

    def cells(
        self, profile: str, scale: str, seeds: Sequence[int], overrides: Mapping[str, Plain] | None = None,
        data: str = "toy",
    ) -> Cells:  # fmt: skip
        """Return the trials under a profile and a scale, without variants that are not possible or equal the baseline.

        No variant may set what `overrides` set.

        Raises:
            ValueError: If the baseline or all other variants are not possible, or an override sets what is varied.
        """
        given = dict(overrides or {})
        varied = {path for v in self.variants.values() for path in [*v.settings, *v.settings_at_paper, *v.in_scripts]}
        if both := sorted(varied & set(given)):
            raise ValueError(f"The ablation {self.name!r} varies {both[0]}, so leave this setting out.")
        base, published = (self._config(self.baseline, profile, size, given) for size in (scale, "paper"))
        trials = {self.baseline: self._trial(self.baseline, base, seeds, data)}
        left_out = {}
        for label in self.variants:
            if label == self.baseline:
                continue
            try:
                config = self._config(label, profile, scale, given)
            except ValueError as error:
                left_out[label] = str(error)
                continue
            # Equal at the published size: smaller scales have other counts.
            if config == base or self._config(label, profile, "paper", given) == published:
                left_out[label] = OWN
                continue
            trials[label] = self._trial(label, config, seeds, data)
        if len(trials) < 2:
            label, why = min(left_out.items(), key=lambda item: item[1] == OWN)
            told = "is the baseline's own" if why == OWN else f"is not possible: {why.rstrip('.')}"
            raise ValueError(f"The ablation {self.name!r} has nothing to compare: {label!r} {told}.")
        return Cells(trials, left_out)

    def fingerprint(self) -> str:
        """Return sixteen hexadecimal digits of the declaration's hash."""
        return digest([
            self.name, self.axis, self.baseline, identity_of(self.loss), identity_of(self.task),
            sorted(self.base.items()),
            [[label, identity_of(v.loss), sorted(v.settings.items()), sorted(v.settings_at_paper.items()),
              v.is_from_scratch, *([sorted(v.in_scripts.items())] if v.in_scripts else []),
              *([identity_of(v.encoder)] if v.encoder else [])]
             for label, v in self.variants.items()],
            *([identity_of(self.encoder)] if self.encoder else []),
        ])  # fmt: skip

    def _config(self, label: str, profile: str, scale: str, given: Mapping[str, Plain]) -> dict[str, Plain]:
        variant = self.variants[label]
        sizes = {**variant.settings_at_paper, **(variant.in_scripts if profile == "reference" else {})}
        sizes = sizes if scale == "paper" else {}
        scratch = {_WEIGHTS: ""} if variant.is_from_scratch else {}
        values = {**TO_THE_END, **self.base, **given, **variant.settings, **sizes, **scratch}
        return RunConfig.of(values, profile=profile, scale=scale, **self._names(variant)).flat()

    def _names(self, variant: Variant) -> dict[str, str]:
        return {
            "loss": variant.loss or self.loss, "task": self.task, "encoder": variant.encoder or self.encoder,
        }  # fmt: skip

    def _trial(self, label: str, config: dict[str, Plain], seeds: Sequence[int], data: str) -> Trial:
        return Trial(config, tuple(seeds), STAGE, {self.axis: label}, data)


def values(path: str, *of_path: Plain) -> dict[str, Variant]:
    """Return a variant for each value of a setting."""
    return {str(value): Variant({path: value}) for value in of_path}


def negatives(*counts: int) -> dict[str, Variant]:
    """Return a variant for each value of the paper's M; see `negatives_axis`."""
    return {label: Variant(settings) for label, settings in negatives_axis(*counts).settings.items()}


# Ablations train to their end, and learn no scale: variants of these would be the baseline once more.
WITHOUT_EFFECT = (*TO_THE_END, "loss.learned_as", "loss.learned")


def flipped_settings(loss: str = "mc_info_nce", task: str = "toy", *, is_own: bool = False) -> dict[str, Variant]:
    """Return a variant for each value that a profile gives a named setting, alone; `cells` omits a profile's own.

    With `is_own`, settings that all losses of the controlled experiment have are left out.
    """
    reader = RunConfig.of(loss=loss, task=task)
    fitting = [s for s in SETTINGS if s.loss in ("", loss) and s.task in ("", task) and s.path in reader.paths()]
    fitting = [s for s in fitting if s.loss or s.task == "images" or not is_own]
    fitting = [s for s in fitting if s.path not in WITHOUT_EFFECT]
    plain = [(s.path, reader.read(s.path, v)) for s in fitting for v in (*(s.of(p) for p in Profile), *s.others)]
    return {f"{path}={value}": Variant({path: value}) for path, value in dict.fromkeys(plain)}


def seeds_at(scale: str) -> tuple[int, ...]:
    """Return the default seeds of an ablation: all report seeds at the scale `paper`, else the first few."""
    require_choice("scale", scale, list(_N_SEEDS))
    return SEEDS[: _N_SEEDS[scale]]


def load_ablation(text: str) -> Ablation:
    """Load an ablation by its name, or by the path of a file that defines `ABLATION`.

    Raises:
        ValueError: If there is none, or it cannot be read; the message has file, line and cause.
    """
    return ABLATIONS.load(text, Ablation)


ablation_names = ABLATIONS.names
