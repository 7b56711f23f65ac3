"""HIB, hedged instance embeddings, in its contrastive form on the sphere.

Axes: S samples, B anchors, N negatives, D dim.
"""

import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from pcl.losses.base import (
    Loss,
    LossConfig,
    SampledMatch,
    Triple,
    over_samples,
    require,
    require_count,
    require_member,
    require_positive,
)
from pcl.losses.learned_scalar import LearnedAs, PositiveScalar


class Expectation(Enum):
    """The place of the mean over samples."""

    LOG_OF_MEAN = "log_of_mean"  # as the paper writes it
    MEAN_OF_LOGS = "mean_of_logs"  # as the released code computes it; drives kappa to infinity


class NegativeWeight(Enum):
    """Weight of each of the N negatives' terms."""

    ONE_OVER_N = "one_over_n"  # as the paper writes it: their mean
    ONE_OVER_N_SQUARED = "one_over_n_squared"  # as the released code computes it: their mean, divided by N again

    def of(self, n_negatives: int) -> float:
        """Return the weight as a number."""
        return 1 / n_negatives if self is NegativeWeight.ONE_OVER_N else 1 / n_negatives**2


class Learned(Enum):
    """The numbers of the match probability that are learned together."""

    A = "a"  # the scale, HIB's counterpart of kappa_pos
    A_AND_B = "a_and_b"  # scale and offset, as the released code has it


def hib(
    positive: Tensor,
    negatives: Tensor,
    a: Tensor | float,
    b: Tensor | float,
    expectation: Expectation,
    negative_weight: float,
) -> Tensor:
    """Return -log E sigmoid(a c + b) - w sum_n log E (1 - sigmoid(a c_n + b)).

    E is the mean over samples: inside each logarithm (LOG_OF_MEAN, the paper) or outside (MEAN_OF_LOGS). Cosines are
    c = z_k.z+_k, (S, B), and c_n = z_k.z-_kn, (S, B, N); w is 1/N in the paper. The result is (B,).
    """
    return _combine([_totals(positive, negatives, a, b, expectation)], len(positive), expectation, negative_weight)


def _totals(
    positive: Tensor, negatives: Tensor, a: Tensor | float, b: Tensor | float, expectation: Expectation
) -> tuple[Tensor, Tensor]:
    """Return sums over samples of match (B,) and non-match (B, N) probabilities, in log space for LOG_OF_MEAN."""
    log_match, log_no_match = logsigmoid(a * positive + b), logsigmoid(-(a * negatives + b))
    return _total(log_match, expectation), _total(log_no_match, expectation)


def _total(logs: Tensor, expectation: Expectation) -> Tensor:
    return torch.logsumexp(logs, dim=0) if expectation is Expectation.LOG_OF_MEAN else logs.sum(0)


def _combine(
    chunks: list[tuple[Tensor, ...]], n_samples: int, expectation: Expectation, negative_weight: float
) -> Tensor:
    match, no_match = (_total(torch.stack(totals), expectation) for totals in zip(*chunks, strict=True))
    if expectation is Expectation.LOG_OF_MEAN:
        match, no_match = match - math.log(n_samples), no_match - math.log(n_samples)
    else:
        match, no_match = match / n_samples, no_match / n_samples
    return -match - negative_weight * no_match.sum(-1)


class HIB(Loss):
    """Hedged instance embeddings without their KL term, as the paper compares them: see `hib` for the formula.

    Gradients reach mu and kappa of all three distributions. Limits: kappa -> inf everywhere gives the same formula
    at the modes.
    """

    @dataclass(frozen=True)
    class Config(LossConfig):
        """Settings of the loss."""

        n_samples: int = 512  # Monte-Carlo samples S per posterior
        a: float = 1.0  # scale of the match probability, a > 0
        b: float = 0.0  # offset of the match probability
        learn_a: bool = False  # whether a is learned, HIB's counterpart of a learned kappa_pos; b too, see `learned`
        learned: Learned = Learned.A  # numbers that are learned if `learn_a`
        learned_as: LearnedAs = LearnedAs.LOG  # parameter behind a learned a
        expectation: Expectation = Expectation.LOG_OF_MEAN  # place of the mean over samples
        negative_weight: NegativeWeight = NegativeWeight.ONE_OVER_N  # weight of each negative

        def __post_init__(self) -> None:
            require_count("n_samples", self.n_samples)
            require_positive("a", self.a)
            require_member("learned", self.learned, Learned)
            require_member("learned_as", self.learned_as, LearnedAs)
            require_member("expectation", self.expectation, Expectation)
            require_member("negative_weight", self.negative_weight, NegativeWeight)
            require(math.isfinite(self.b), f"`b` must be finite, but got {self.b}.")

        def build(self) -> "HIB":
            return HIB(self)

        @property
        def fused(self) -> SampledMatch | None:
            """The numbers that fused kernels need; a class derived from this one may compute something else."""
            if type(self) is not HIB.Config:
                return None
            is_mean_inside = self.expectation is Expectation.LOG_OF_MEAN
            return SampledMatch(self.n_samples, is_mean_inside, self.negative_weight.of)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.a = PositiveScalar(config.a, config.learn_a, config.learned_as)
        is_b_learned = config.learn_a and config.learned is Learned.A_AND_B
        self.b = nn.Parameter(torch.tensor(float(config.b))) if is_b_learned else None

    def offset(self) -> Tensor | float:
        """Return b, a parameter if it is learned."""
        return self.config.b if self.b is None else self.b

    def learned_numbers(self) -> dict[str, float]:
        return super().learned_numbers() | ({} if self.b is None else {"b": self.b.item()})

    def _per_anchor(self, posteriors: Triple, generator: torch.Generator | None) -> Tensor:
        config, a, b = self.config, self.a(), self.offset()

        def reduce_chunk(positive_cosines: Tensor, negative_cosines: Tensor) -> tuple[Tensor, Tensor]:
            return _totals(positive_cosines, negative_cosines, a, b, config.expectation)

        chunks = over_samples(reduce_chunk, posteriors, config.n_samples, self.chunk_size, generator)
        weight = config.negative_weight.of(posteriors.n_negatives)
        return _combine(chunks, config.n_samples, config.expectation, weight)
