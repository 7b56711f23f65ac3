"""The profiles paper | reference | exact: every difference between text, released code and theorem, as a named setting.

A profile is a value for each of these dotted paths; `RunConfig.of` applies it, and any of them can be varied alone.

- paper: the text as written, with exact mathematics.
- reference: what the released code computes; for matching the published tables.
- exact: the theorem's own setting, on the released generators.
"""

from dataclasses import dataclass
from enum import Enum

from pcl.config.schedule import LrSchedule, Optimizer
from pcl.distributions import Sampler, SamplerGradient
from pcl.encoders import Head, KappaLink, KappaPhase, KappaRange, KappaWidth
from pcl.losses import (
    AnchorSamples,
    ElkNegatives,
    ElkNormalizer,
    Expectation,
    NegativeWeight,
    PartnerSamples,
    PositiveWeight,
)
from pcl.tasks import (
    AcceptanceConstant,
    NegativePool,
    NegativeRule,
    Negatives,
    NegativeWeights,
    PositiveRule,
    Smoothing,
)


class Profile(Enum):
    """A fidelity profile, that is a value for every such setting."""

    PAPER = "paper"
    REFERENCE = "reference"
    EXACT = "exact"


@dataclass(frozen=True)
class Setting:
    """One setting in which the profiles differ.

    Attributes:
        path: Dotted path in the configuration.
        paper: Its value under `paper`.
        reference: Its value under `reference`.
        exact: Its value under `exact`.
        effect: Effect of the difference.
        loss: The only loss that has this setting; empty if it is not a loss's.
        task: The only task that has it; empty if several have.
    """

    path: str
    paper: object
    reference: object
    exact: object
    effect: str
    loss: str = ""
    task: str = ""

    def of(self, profile: Profile) -> object:
        """Return its value under a profile."""
        return {Profile.PAPER: self.paper, Profile.REFERENCE: self.reference, Profile.EXACT: self.exact}[profile]


SETTINGS = (
    Setting(
        "task.sampler", Sampler.EXACT, Sampler.RELEASED, Sampler.EXACT,
        "the release's vMF samples at nominal kappa 16 have kappa 15.9 at D = 10, 12.1 at 32, 0.5 at 64",
    ),
    Setting(
        "encoder.sampler", Sampler.EXACT, Sampler.RELEASED, Sampler.EXACT,
        "the same for samples from the encoder's posteriors",
    ),
    Setting(
        "encoder.sampler_gradient", SamplerGradient.EXACT, SamplerGradient.UNCORRECTED, SamplerGradient.EXACT,
        "without the correction for rejection, the gradient in kappa is 0.98 of the exact one at D = 10, 1.45 at 32",
    ),
    Setting(
        "task.acceptance_constant", AcceptanceConstant.EXACT, AcceptanceConstant.FITTED, AcceptanceConstant.EXACT,
        "log C(0)/C(20) is 9.50 for 11.15 at D = 10: 7.7% instead of 4.4% of random pairs pass as positive",
    ),
    Setting(
        "task.positives", PositiveRule.LOGISTIC, PositiveRule.LOGISTIC, PositiveRule.VMF,
        "the logistic rule saturates near the anchor; only vMF positives are those of the theorem",
    ),
    Setting(
        "task.negatives", NegativeRule.UNIFORM, NegativeRule.REJECT_POSITIVES, NegativeRule.UNIFORM,
        "the release rejects negatives that the rule calls positive: 8% at D = 10, 84% at D = 64",
    ),
    Setting(
        "task.smoothing", Smoothing.NONE, Smoothing.RELEASED, Smoothing.RELEASED,
        "as drawn, modes crowd together (mean cosine 0.9) and one draw in hundreds passes; smoothed, they spread",
    ),
    Setting(
        "task.kappa_link", KappaLink.ONE_PLUS_EXP, KappaLink.SCALED_SOFTPLUS, KappaLink.SCALED_SOFTPLUS,
        "the shape of kappa(x) between its ends",
    ),
    Setting(
        "encoder.kappa_link", KappaLink.ONE_PLUS_EXP, KappaLink.SCALED_SOFTPLUS, KappaLink.ONE_PLUS_EXP,
        "with the release's scale of 240 to 3,700 one step of Adam can move log kappa by 1",
    ),
    Setting(
        "encoder.kappa_width", KappaWidth.AS_MU, KappaWidth.NARROW, KappaWidth.AS_MU,
        "1.1 million or 11 thousand parameters of the kappa network at D = 10",
    ),
    Setting(
        "encoder.kappa_range", KappaRange.GENERATOR, KappaRange.SIXTEEN_TO_32, KappaRange.GENERATOR,
        "the released scripts start kappa-hat at 16 to 32 also where the truth is 64 to 128",
    ),
    Setting(
        "training.lr_schedule", LrSchedule.QUARTERS, LrSchedule.PHASES, LrSchedule.PHASES,
        "lr 1, .1, .01, .001 (x 1e-4) over the quarters, or 1, .5, .71, .35 phasewise and one halving when joint",
    ),
    Setting("training.lr_decay", 0.1, 0.5, 0.1, "see training.lr_schedule; the release's first version has 0.1 here"),
    Setting(
        "training.negatives", Negatives.DRAWN, Negatives.DRAWN, Negatives.POOL,
        "against all candidates that the positive was chosen from, the truth is the optimum for any number of them",
    ),
    Setting(
        "training.mu_phase_negatives", Negatives.IN_BATCH, Negatives.IN_BATCH, Negatives.POOL,
        "the same in mu phases",
    ),
    Setting("training.n_negatives", 32, 32, 1024, "how many"),
    Setting(
        "training.optimizer", Optimizer.ADAM, Optimizer.ADAMW, Optimizer.ADAM,
        "images: without or with a weight decay of 0.01",
        task="images",
    ),
    Setting(
        "task.negative_weights", NegativeWeights.NOT_OF_CLASS, NegativeWeights.UNLIKE_ANCHOR,
        NegativeWeights.NOT_OF_CLASS,
        "images: negatives by 1 - P(c|x) of the positive's class c, or by 1 - p.p' of the two images' shares",
        task="images",
    ),
    Setting(
        "task.negative_pool", NegativePool.ALL, NegativePool.FIRST_256, NegativePool.ALL,
        "images: the release keeps the numbers of negatives in eight bits, so that only 256 images are ever negatives",
        task="images",
    ),
    Setting(
        "encoder.head", Head.LINEAR, Head.WEIGHT_NORMED, Head.LINEAR,
        "images: the last layer with a bias, or without one and weight-normed",
        task="images",
    ),
    Setting(
        "encoder.kappa_phase", KappaPhase.MU_FIXED, KappaPhase.EVERYTHING, KappaPhase.MU_FIXED,
        "images: in kappa phases no gradient passes through mu, or all of the network trains",
        task="images",
    ),
    Setting(
        "loss.positive_weight", PositiveWeight.ONE_OVER_N, PositiveWeight.ONE, PositiveWeight.ZERO,
        "weight of the positive in the denominator: 1/M, M times as much, or none (infinitely many negatives)",
        loss="mc_info_nce",
    ),
    Setting(
        "loss.partners", PartnerSamples.DRAWN, PartnerSamples.DRAWN, PartnerSamples.INTEGRATED,
        "samples of positives and negatives, or their expectation in closed form",
        loss="mc_info_nce",
    ),
    Setting(
        "loss.anchors", AnchorSamples.POSTERIOR, AnchorSamples.POSTERIOR, AnchorSamples.GUIDED,
        "samples of the anchor's own, or near it and its positive: four of those are worth 256",
        loss="mc_info_nce",
    ),
    Setting(
        "loss.n_samples", 512, 512, 16, "guided ones are so few; with 1,024 candidates each, more would only take time",
        loss="mc_info_nce", task="toy",
    ),
    Setting(
        "loss.expectation", Expectation.LOG_OF_MEAN, Expectation.MEAN_OF_LOGS, Expectation.LOG_OF_MEAN,
        "HIB's mean outside the logarithm drives kappa to infinity for every (a, b)",
        loss="hib",
    ),
    Setting(
        "loss.negative_weight", NegativeWeight.ONE_OVER_N, NegativeWeight.ONE_OVER_N_SQUARED, NegativeWeight.ONE_OVER_N,
        "HIB's 32 negatives count 1/32 in the release",
        loss="hib",
    ),
    Setting(
        "loss.negatives", ElkNegatives.GIVEN, ElkNegatives.ROLLED_POSITIVES, ElkNegatives.GIVEN,
        "the release's ELK with M = 0 rolls the positives' similarities: nothing repels, the cell is void",
        loss="elk",
    ),
    Setting(
        "loss.normalizer", ElkNormalizer.EXACT, ElkNormalizer.FITTED, ElkNormalizer.EXACT,
        "the release's ELK uses a regression of log C for six dimensions; its slope is off by 61% at kappa 4",
        loss="elk",
    ),
)  # fmt: skip


def settings_of(profile: Profile, loss: str, task: str) -> dict[str, object]:
    """Return the value of every path under a profile, for a loss of `LOSSES` and a task."""
    fit = [setting for setting in SETTINGS if setting.loss in ("", loss) and setting.task in ("", task)]
    return {setting.path: setting.of(profile) for setting in fit}
