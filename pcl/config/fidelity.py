"""The profiles paper | reference | exact: every difference between text, released code and theorem, as a named setting.

A profile is a value for each of these dotted paths; `RunConfig.of` applies it, and any of them can be varied alone.

- paper: the text as written, with exact mathematics.
- reference: what the released code computes; for matching the published tables.
- exact: the theorem's own setting, on the released generators.
"""

from dataclasses import dataclass
from enum import Enum

Value = str | int | float


class Profile(Enum):
    """A fidelity profile, that is a value for every such setting."""

    PAPER = "paper"
    REFERENCE = "reference"
    EXACT = "exact"


@dataclass(frozen=True)
class Setting:
    """One setting in which the profiles differ."""

    path: str  # dotted path in the configuration
    paper: Value
    reference: Value
    exact: Value
    loss: str = ""  # the only loss that has this setting; empty if it is not a loss's
    task: str = ""  # the only task that has it; empty if several have
    effect: str = ""  # of the difference, for the manual

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
            effect="log C(0)/C(20) is 9.50, not 11.15, at D = 10: 7.7%, not 4.4%, of random pairs pass as positive"),
    Setting("task.positives", "logistic", "logistic", "vmf",
            effect="the logistic rule saturates near the anchor; only vMF positives are those of the theorem"),
    Setting("task.negatives", "uniform", "reject_positives", "uniform",
            effect="the release rejects negatives that the rule calls positive: 8% at D = 10, 84% at D = 64"),
    Setting("task.smoothing", "none", "released", "released",
            effect="as drawn, modes crowd (mean cosine 0.9) and one draw in hundreds passes; smoothed, they spread"),
    Setting("task.kappa_link", "one_plus_exp", "scaled_softplus", "scaled_softplus",
            effect="shape of kappa(x) between its ends"),
    Setting("encoder.kappa_link", "one_plus_exp", "scaled_softplus", "one_plus_exp",
            effect="at the release's scale of 240 to 3,700, one step of Adam can move log kappa by 1"),
    Setting("encoder.kappa_width", "as_mu", "narrow", "as_mu",
            effect="1.1 million or 11 thousand parameters of the kappa network at D = 10"),
    Setting("encoder.kappa_range", "generator", "sixteen_to_32", "generator",
            effect="the released scripts start kappa-hat at 16 to 32 even where the truth is 64 to 128"),
    Setting("training.lr_schedule", "quarters", "phases", "phases",
            effect="rate 1, .1, .01, .001 (x 1e-4) by quarters; or 1, .5, .71, .35 by phases, one halving when joint"),
    Setting("training.lr_decay", 0.1, 0.5, 0.1,
            effect="see training.lr_schedule; the release's first version has 0.1 here"),
    Setting("training.negatives", "drawn", "drawn", "pool",
            effect="against all candidates that the positive was chosen from, the truth is the optimum for any number"),
    Setting("training.mu_phase_negatives", "in_batch", "in_batch", "pool",
            effect="the same, in mu phases"),
    Setting("training.n_negatives", 32, 32, 1024,
            effect="number of negatives"),
    Setting("training.optimizer", "adam", "adamw", "adam", task="images",
            effect="without or with a weight decay of 0.01"),
    Setting("task.negative_weights", "not_of_class", "unlike_anchor", "not_of_class", task="images",
            effect="negatives by 1 - P(c|x) of the positive's class c, or by 1 - p.p' of the two images' shares"),
    Setting("task.negative_pool", "all", "first_256", "all", task="images",
            effect="the release keeps the indices of negatives in eight bits: only 256 images are ever negatives"),
    Setting("encoder.head", "linear", "weight_normed", "linear", task="images",
            effect="last layer with a bias, or weight-normed without one"),
    Setting("encoder.kappa_phase", "mu_fixed", "everything", "mu_fixed", task="images",
            effect="in kappa phases no gradient passes through mu, or the whole network trains"),
    Setting("loss.positive_weight", "one_over_n", "one", "zero", loss="mc_info_nce",
            effect="weight of the positive in the denominator: 1/M, 1, or none (infinitely many negatives)"),
    Setting("loss.partners", "drawn", "drawn", "integrated", loss="mc_info_nce",
            effect="samples of positives and negatives, or their expectation in closed form"),
    Setting("loss.anchors", "posterior", "posterior", "guided", loss="mc_info_nce",
            effect="samples of the anchor alone, or near it and its positive: four of those are worth 256"),
    Setting("loss.n_samples", 512, 512, 32, loss="mc_info_nce", task="toy",
            effect="guided samples need to be few: 64 lower the kappa error by 0.02, for 1.7 times the time"),
    Setting("loss.expectation", "log_of_mean", "mean_of_logs", "log_of_mean", loss="hib",
            effect="HIB's mean outside the logarithm drives kappa to infinity for every (a, b)"),
    Setting("loss.negative_weight", "one_over_n", "one_over_n_squared", "one_over_n", loss="hib",
            effect="HIB's 32 negatives count 1/32 in the release"),
    Setting("loss.negatives", "given", "rolled_positives", "given", loss="elk",
            effect="the release's ELK with M = 0 rolls the positives' similarities: nothing repels, the cell is void"),
    Setting("loss.normalizer", "exact", "fitted", "exact", loss="elk",
            effect="the release's ELK fits log C by regression in six dimensions; its slope is off by 61% at kappa 4"),
)  # fmt: skip


def settings_of(profile: Profile, loss: str, task: str) -> dict[str, Value]:
    """Return the value of every path under a profile, for a loss of `LOSSES` and a task."""
    fit = [setting for setting in SETTINGS if setting.loss in ("", loss) and setting.task in ("", task)]
    return {setting.path: setting.of(profile) for setting in fit}
