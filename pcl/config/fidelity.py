"""The profiles paper | reference | exact: every difference between text, released code and theorem, as a named setting.

A profile assigns a value to each of these dotted paths. `RunConfig.of` applies it; any path can be varied alone.

- paper: the text as written, with exact mathematics.
- reference: what the released code computes; for matching the published tables.
- exact: the theorem's own setting, on the released generators.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

Value = str | int | float


class Profile(Enum):
    """A fidelity profile: a value for every such setting."""

    PAPER = "paper"
    REFERENCE = "reference"
    EXACT = "exact"


@dataclass(frozen=True)
class Where:
    """An exception in the controlled experiment: a value under reference if another setting has a given one."""

    path: str  # of the other setting
    equals: Value
    value: Value


@dataclass(frozen=True)
class Setting:
    """One setting in which text, released code, theorem or this program differ."""

    path: str  # dotted path in the configuration
    paper: Value
    reference: Value
    exact: Value
    loss: str = ""  # the only loss that has this setting; empty if it is not a loss's
    task: str = ""  # the only task that has it; empty if several have
    effect: str = ""  # effect of the difference, for the manual
    where: Where | None = None  # exception under reference
    others: tuple[Value, ...] = ()  # further values to compare, used by no profile

    def of(self, profile: Profile) -> Value:
        """Return its value under a profile."""
        return {Profile.PAPER: self.paper, Profile.REFERENCE: self.reference, Profile.EXACT: self.exact}[profile]


# Path, value under paper, reference and exact; `launch/docs.py` renders this table in the manual.
SETTINGS = (
    Setting("task.sampler", "exact", "released", "exact",
            effect="vMF samples of the release at nominal kappa 16 have kappa 15.9 at D = 10, 12.1 at 32, 0.5 at 64"),
    Setting("encoder.sampler", "exact", "released", "exact",
            effect="the same, for samples from the encoder's posteriors"),
    Setting("encoder.sampler_gradient", "exact", "uncorrected", "exact",
            effect="uncorrected for rejection, the gradient in kappa is 0.98 (D = 10) or 1.45 (32) of the exact one"),
    Setting("task.acceptance_constant", "exact", "fitted", "exact",
            effect="at D = 10, log C(0)/C(20) is 9.50, not 11.15: 7.7% of random pairs pass as positive, not 4.4%"),
    Setting("task.positives", "logistic", "logistic", "vmf",
            effect="the logistic rule saturates near the anchor; only vMF positives are those of the theorem"),
    Setting("task.negatives", "uniform", "reject_positives", "uniform",
            effect="the release rejects negatives that the rule calls positive: 8% of them at D = 10, 84% at D = 64"),
    Setting("task.smoothing", "none", "released", "released",
            effect="as drawn, modes crowd (mean cosine 0.9) and hundreds of draws fail; after smoothing they spread"),
    Setting("task.kappa_link", "one_plus_exp", "scaled_softplus", "scaled_softplus",
            effect="shape of kappa(x) between its ends"),
    Setting("task.backbone", "independent", "independent", "independent", others=("shared",),
            where=Where("encoder.backbone", "shared", "shared"),
            effect="a shared backbone changes the release's truth too: kappa(x) is a deep network's value at mu(x)"),
    Setting("encoder.kappa_link", "one_plus_exp", "scaled_softplus", "one_plus_exp",
            effect="at the release's scale of 240 to 3,700, one step of Adam can move log kappa by 1"),
    Setting("encoder.kappa_width", "as_mu", "narrow", "as_mu",
            effect="at D = 10, the kappa network has 1.1 million or 11 thousand parameters"),
    Setting("encoder.kappa_range", "generator", "sixteen_to_32", "generator",
            effect="the released scripts start kappa-hat at 16 to 32 even if the truth is 64 to 128"),
    Setting("training.lr_schedule", "quarters", "phases", "phases", task="toy",
            effect="rate in 1e-4: 1, d, d^2, d^3 by quarters; or 1, d, d^.5, d^1.5 by phases, one step by d if joint"),
    Setting("training.lr_schedule", "quarters", "phase_starts", "quarters", task="images",
            effect="the same by quarters; or 1, 1, d, d, and one step by d if joint"),
    Setting("training.release_version", "first", "first", "first", others=("last",),
            effect="first: d = 0.1 and Adam, as in the text; last: d = 0.5, and AdamW for images. Sets "
            "training.lr_decay and training.optimizer, which can also be set directly"),
    Setting("training.kappa_limit", 1e6, "inf", 1e6,
            effect="in the release nothing ends a run early: HIB's published kappa of 1e14 comes from such a run"),
    Setting("training.negatives", "drawn", "drawn", "pool",
            effect="pool: all candidates that the positive was chosen from; the truth is the optimum for any number"),
    Setting("training.mu_phase_negatives", "in_batch", "in_batch", "pool", where=Where("encoder.dim", 2, "drawn"),
            effect="the same in mu phases: the release takes them from the batch, and draws them only if D = 2"),
    Setting("training.n_negatives", 32, 32, 1024,
            effect="number of negatives; the recipe for images under exact has 256 candidates"),
    Setting("task.negative_weights", "not_of_class", "unlike_anchor", "not_of_class", task="images",
            effect="weight of a negative: 1 - P(c|x), c the positive's class, or 1 - p.p' of the two images' shares"),
    Setting("task.negative_pool", "all", "modulo_256", "all", task="images",
            effect="the release keeps indices in eight bits: negatives are 256 images, with hard labels 9.5% of them "
            "of the anchor's class"),
    Setting("task.folds", "authors", "authors", "authors", task="images", others=("own",),
            effect="CIFAR-10H's five sets as published by the authors, or our own, which all other images use"),
    Setting("task.crops", "authors", "authors", "authors", task="images", others=("own",),
            effect="the same for the crop sizes; the authors use the same 2,000 for validation and test"),
    Setting("encoder.head", "linear", "weight_normed", "linear", task="images",
            effect="last layer: linear with a bias, or weight-normed without one"),
    Setting("encoder.kappa_phase", "mu_fixed", "everything", "mu_fixed", task="images",
            effect="in kappa phases, no gradient passes through mu, or the whole network trains"),
    Setting("loss.learned_as", "log", "value", "log",
            effect="a learned kappa_pos or a is trained as its logarithm, or directly, where Adam moves a "
            "kappa_pos of 20 by a twentieth as much"),
    Setting("loss.positive_weight", "one_over_n", "one", "zero", loss="mc_info_nce",
            effect="weight of the positive in the denominator: 1/M, 1, or none (infinitely many negatives)"),
    Setting("loss.partners", "drawn", "drawn", "integrated", loss="mc_info_nce",
            effect="samples of positives and negatives, or their expectation in closed form"),
    Setting("loss.anchors", "posterior", "posterior", "guided", loss="mc_info_nce",
            effect="samples of the anchor alone, or near it and its positive: four of those are worth 256"),
    Setting("loss.n_samples", 512, 512, 32, loss="mc_info_nce", task="toy",
            effect="few guided samples suffice: 8 are as good as 32, as far as three seeds show"),
    Setting("loss.expectation", "log_of_mean", "mean_of_logs", "log_of_mean", loss="hib",
            effect="with the mean outside the logarithm, kappa goes to infinity for every (a, b)"),
    Setting("loss.negative_weight", "one_over_n", "one_over_n_squared", "one_over_n", loss="hib",
            effect="in the release, 32 negatives together weigh 1/32"),
    Setting("loss.learned", "a", "a_and_b", "a", loss="hib",
            effect="if learnable, HIB learns a alone, its counterpart of kappa_pos, or both a and b"),
    Setting("loss.negatives", "given", "rolled_positives", "given", loss="elk",
            effect="with M = 0, the release rolls the positives' similarities: nothing repels, so the cell is void"),
    Setting("loss.normalizer", "exact", "fitted", "exact", loss="elk",
            effect="the release fits log C by regression, for six dimensions; its slope is off by 61% at kappa 4"),
)  # fmt: skip


# Tables and ablations compare final results, so none of their runs is ended early, under any profile. Searches under
# `paper` and `exact` do end runaway runs.
TO_THE_END: dict[str, Value] = {"training.kappa_limit": "inf"}


RELEASE = "training.release_version"
_RELEASES: dict[str, dict[str, Value]] = {
    "first": {"training.lr_decay": 0.1, "training.optimizer": "adam"},
    "last": {"training.lr_decay": 0.5, "training.optimizer": "adamw"},
}


def release_settings(version: str, task: str) -> dict[str, Value]:
    """Return what a version of the release sets for a task: the decay of the rate, and for images the optimiser."""
    return {
        path: value for path, value in _RELEASES[version].items() if path != "training.optimizer" or task == "images"
    }


def settings_of(profile: Profile, loss: str, task: str, given: Mapping[str, Value]) -> dict[str, Value]:
    """Return the value of every path under a profile, for a loss of `LOSSES`, a task and given values."""
    fit = [setting for setting in SETTINGS if setting.loss in ("", loss) and setting.task in ("", task)]
    found = {setting.path: setting.of(profile) for setting in fit}
    if profile is Profile.REFERENCE and task == "toy":
        special = [(s.path, s.where) for s in fit if s.where is not None]
        found |= {path: where.value for path, where in special if given.get(where.path) == where.equals}
    return found
