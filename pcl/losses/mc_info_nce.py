"""MCInfoNCE: InfoNCE with the mean over posterior samples inside the logarithm.

Axes: S samples, B anchors, N negatives, D dim.
"""

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.utils.checkpoint import checkpoint

from pcl.distributions import VonMisesFisher
from pcl.losses import tabulated
from pcl.losses.base import (
    ADDED_LATER,
    CPU_CHUNK_SIZE,
    Loss,
    LossConfig,
    Negatives,
    PositiveWeight,
    SampledContrast,
    Triple,
    contrastive_log_ratio,
    over_samples,
    require,
    require_count,
    require_member,
    require_positive,
)
from pcl.losses.learned_scalar import LearnedAs, PositiveScalar
from pcl.losses.log_mean import LogMean, log_mean_exp
from pcl.mathematics.point_limit import is_nearly_a_point, point_similarity
from pcl.mathematics.special import bessel_ratio, log_vmf_normalizer


class PartnerSamples(Enum):
    """The form in which positives and negatives enter, given a sample z of the anchor."""

    DRAWN = "drawn"  # e^{kappa_pos z.z'} of one sample z' each, as the paper writes it
    # Its expectation over z', C(kappa') / C(|kappa' mu' + kappa_pos z|). The loss is then the same only with infinitely
    # many negatives (positive weight zero): numerator and denominator are independent given z.
    INTEGRATED = "integrated"


class AnchorSamples(Enum):
    """The law of the anchor's samples z if partners are integrated."""

    POSTERIOR = "posterior"  # the anchor's own, as the paper writes it
    # Near the anchor and its positive at once, weighted by the ratio of the two densities: the same loss with far fewer
    # samples. Few samples of the anchor's own come near the positive, and the log of their mean is biased.
    GUIDED = "guided"


def mc_info_nce(positive: Tensor, negatives: Tensor, positive_weight: float) -> Tensor:
    """Return -log 1/S sum_k e^{s_k} / (w e^{s_k} + 1/N sum_n e^{s_kn}), (B,); the mean over samples is inside the log.

    Similarities are s_k = kappa_pos z_k.z+_k, (S, B), and s_kn = kappa_pos z_k.z-_kn, (S, B, N); w is 1/N in the paper.
    """
    return -log_mean_exp(contrastive_log_ratio(positive, negatives, positive_weight), 0, LogMean.PLAIN)


class MCInfoNCE(Loss):
    """The paper's loss, Eq. (form:MC): see `mc_info_nce` for the formula.

    Gradients reach mu and kappa of all three distributions. Limits: kappa -> inf everywhere gives InfoNCE. Cosines
    follow torch's float32 matmul precision (TF32 on a GPU is off by 5e-4) and ignore autocast.

    Example:
        >>> from pcl.distributions import VonMisesFisher
        >>> from pcl.losses import in_batch_negatives
        >>> generator = torch.Generator().manual_seed(0)
        >>> mu = torch.nn.functional.normalize(torch.randn(8, 10, generator=generator), dim=-1)
        >>> posteriors = VonMisesFisher(mu, 20.0)
        >>> loss = MCInfoNCE.Config(n_samples=64).build()
        >>> loss(posteriors, posteriors, in_batch_negatives(posteriors), generator=generator).shape
        torch.Size([8])
    """

    @dataclass(frozen=True)
    class Config(LossConfig):
        """Settings of the loss."""

        n_samples: int = 512  # Monte-Carlo samples S per posterior
        kappa_pos: float = 20.0  # concentration of positive pairs, which scales cosines to similarities
        learn_kappa_pos: bool = False  # whether kappa_pos is learned
        learned_as: LearnedAs = LearnedAs.LOG  # parameter behind a learned kappa_pos
        positive_weight: PositiveWeight = PositiveWeight.ONE_OVER_N  # weight of the positive in the denominator
        partners: PartnerSamples = PartnerSamples.DRAWN  # form in which positives and negatives enter
        anchors: AnchorSamples = AnchorSamples.POSTERIOR  # law of the anchor's samples
        # Estimate of the logarithm of the mean over samples
        log_mean: LogMean = field(default=LogMean.PLAIN, metadata=ADDED_LATER)

        def __post_init__(self) -> None:
            require_count("n_samples", self.n_samples)
            require_positive("kappa_pos", self.kappa_pos)
            require_member("learned_as", self.learned_as, LearnedAs)
            require_member("positive_weight", self.positive_weight, PositiveWeight)
            require_member("partners", self.partners, PartnerSamples)
            require_member("anchors", self.anchors, AnchorSamples)
            require_member("log_mean", self.log_mean, LogMean)
            require(
                self.partners is PartnerSamples.DRAWN or self.positive_weight is PositiveWeight.ZERO,
                f"`positive_weight` must be zero where partners are integrated, but got {self.positive_weight.value}.",
            )
            require(
                self.anchors is AnchorSamples.POSTERIOR or self.partners is PartnerSamples.INTEGRATED,
                f"`partners` must be integrated where anchors are guided, but got {self.partners.value}.",
            )

        def build(self) -> "MCInfoNCE":
            return MCInfoNCE(self)

        def check(self, dim: int, sources: Collection[Negatives]) -> None:
            """Raise a ValueError where one negative would stand for infinitely many."""
            require(
                self.partners is PartnerSamples.DRAWN or Negatives.IN_BATCH not in sources,
                "`loss.partners=integrated` stands for infinitely many negatives, but in-batch there is only one.",
            )

        @property
        def fused(self) -> SampledContrast | None:
            """The numbers that fused kernels need; a class derived from this one may compute something else."""
            if type(self) is not MCInfoNCE.Config:
                return None
            return SampledContrast(
                self.n_samples, math.inf if self.learn_kappa_pos else self.kappa_pos, self.positive_weight,
                self.partners is PartnerSamples.INTEGRATED, self.anchors is AnchorSamples.GUIDED, self.log_mean,
            )  # fmt: skip

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.kappa_pos = PositiveScalar(config.kappa_pos, config.learn_kappa_pos, config.learned_as)

    def _per_anchor(self, posteriors: Triple, generator: torch.Generator | None) -> Tensor:
        kappa_pos = self.kappa_pos()
        if self.config.partners is PartnerSamples.INTEGRATED:
            # A class derived from this one may compute something else.
            is_tabulated = self.has_tables and type(self) is MCInfoNCE and tabulated.is_tabulated(posteriors.negatives)
            with torch.autocast(posteriors.anchor.mu.device.type, enabled=False):
                integrated = self._tabulated if is_tabulated else self._integrated
                return integrated(posteriors, kappa_pos, generator)
        weight = self.config.positive_weight.of(posteriors.n_negatives)

        def reduce_chunk(positive_cosines: Tensor, negative_cosines: Tensor) -> tuple[Tensor]:
            return (contrastive_log_ratio(kappa_pos * positive_cosines, kappa_pos * negative_cosines, weight),)

        chunks = over_samples(reduce_chunk, posteriors, self.config.n_samples, self.chunk_size, generator)
        return self._negative_log_mean(torch.cat([log_ratio for (log_ratio,) in chunks]))

    def _integrated(self, posteriors: Triple, kappa_pos: Tensor | float, generator: torch.Generator | None) -> Tensor:
        anchor, positive, negatives = posteriors
        z, log_weight = self._anchor_samples(anchor, positive, kappa_pos, generator)
        modes = negatives.mu.expand(z.shape[1], -1, -1)

        def log_ratio(z: Tensor) -> Tensor:
            attracting = log_mean_similarity(positive, (z * positive.mu).sum(-1), kappa_pos)
            repelling = log_mean_similarity(negatives, torch.einsum("sbd,bnd->sbn", z, modes), kappa_pos)
            return contrastive_log_ratio(attracting, repelling, 0.0)

        # In float64, with a few hundred operations per similarity: an eighth of the usual chunk.
        chunk_size = min(self.chunk_size, CPU_CHUNK_SIZE) if z.device.type == "cpu" else self.chunk_size
        length = max(1, chunk_size // (8 * modes.shape[0] * modes.shape[1]))
        parts = z.split(length)
        if len(parts) == 1:
            return self._negative_log_mean(log_ratio(z) + log_weight)
        ratios = [checkpoint(log_ratio, part, use_reentrant=False, preserve_rng_state=False) for part in parts]
        return self._negative_log_mean(torch.cat(ratios) + log_weight)

    def _tabulated(self, posteriors: Triple, kappa_pos: Tensor | float, generator: torch.Generator | None) -> Tensor:
        """Compute what `_integrated` does, from the same random numbers."""
        anchor, positive, negatives = posteriors
        law = self._sampled_law(anchor, positive, kappa_pos, tabulated.mean_cosine)
        z = law.rsample((self.config.n_samples,), generator)
        attracting = tabulated.log_similarity(positive, (z * positive.mu).sum(-1), kappa_pos)
        repelling = tabulated.log_mean_over_negatives(z.flatten(0, 1), negatives.mu[0], negatives.kappa[0], kappa_pos)
        log_terms = attracting - repelling.view_as(attracting)
        if law is not anchor:
            log_terms = log_terms + tabulated.log_ratio(anchor, law, z, kappa_pos)
        return self._negative_log_mean(log_terms)

    def _negative_log_mean(self, log_terms: Tensor) -> Tensor:
        return -log_mean_exp(log_terms, 0, self.config.log_mean)

    def _anchor_samples(
        self,
        anchor: VonMisesFisher,
        positive: VonMisesFisher,
        kappa_pos: Tensor | float,
        generator: torch.Generator | None,
    ) -> tuple[Tensor, Tensor | float]:
        """Draw samples z, (S, B, D), and return them with log Q(z|x) minus the log density they are drawn from."""
        law = self._sampled_law(anchor, positive, kappa_pos, bessel_ratio)
        z = law.rsample((self.config.n_samples,), generator)
        if law is anchor:
            return z, 0.0
        log_weight = anchor.log_prob(z) - law.log_prob(z)
        return z, torch.where(is_nearly_a_point(anchor.kappa, kappa_pos), 0.0, log_weight)  # own samples, of weight 1

    def _sampled_law(
        self,
        anchor: VonMisesFisher,
        positive: VonMisesFisher,
        kappa_pos: Tensor | float,
        ratio: Callable[[Tensor, int], Tensor],
    ) -> VonMisesFisher:
        """Return the law that the anchor's samples come from; `ratio` is A_D(kappa)."""
        if self.config.anchors is AnchorSamples.POSTERIOR:
            return anchor
        return guiding_law(anchor, positive, kappa_pos, lambda kappa: ratio(kappa, anchor.dim))


def guiding_law(
    anchor: VonMisesFisher,
    positive: VonMisesFisher,
    kappa_pos: Tensor | float,
    ratio: Callable[[Tensor], Tensor],
) -> VonMisesFisher:
    """Return the vMF with natural parameter kappa mu + a mu+, about Q(z|x) times the similarity of z and the positive.

    a is the slope of the log similarity in z.mu+ near the most likely z. That log is concave in z.mu+, so that it lies
    below its tangent and the weighted similarity is bounded. Gradients pass, except through a: samples that stayed in
    place while the posteriors move would pull the posteriors towards them.

    An anchor that is nearly a point guides itself: its samples are all about equally near to the positive. `ratio` is
    A(kappa), the mean cosine of a vMF to its mode.
    """
    is_point, is_partner_point = (is_nearly_a_point(one.kappa, kappa_pos) for one in (anchor, positive))
    own = torch.where(is_point, 1.0, anchor.kappa).unsqueeze(-1) * anchor.mu
    with torch.no_grad():
        partner_kappa = torch.where(is_partner_point, 1.0, positive.kappa)
        scale = kappa_pos * partner_kappa
        pull = torch.where(is_partner_point, kappa_pos, scale / (kappa_pos + partner_kappa))
        cosine = (normalize(own + pull.unsqueeze(-1) * positive.mu, dim=-1) * positive.mu).sum(-1)
        resultant = (partner_kappa.square() + kappa_pos**2 + 2 * scale * cosine).clamp(min=1e-12).sqrt()
        slope = torch.where(is_partner_point, kappa_pos, scale * ratio(resultant) / resultant)
    natural = own + slope.unsqueeze(-1) * positive.mu
    mode = torch.where(is_point.unsqueeze(-1), anchor.mu, normalize(natural, dim=-1))
    kappa = torch.where(is_point, anchor.kappa, natural.norm(dim=-1))
    return VonMisesFisher(mode, kappa, validate_args=False)


def log_mean_similarity(partner: VonMisesFisher, cosine: Tensor, kappa_pos: Tensor | float) -> Tensor:
    """Return log E e^{kappa_pos z.z'} over z' ~ vMF(mu', kappa'): log C(kappa') - log C(|kappa' mu' + kappa_pos z|).

    The partner's batch broadcasts to the shape of the cosines z.mu'. Limits: kappa' = inf gives kappa_pos z.mu', with
    gradient 0 in kappa'; see `pcl.mathematics.point_limit`.
    """
    kappa, cosines = partner.kappa.double(), cosine.double()
    is_point = is_nearly_a_point(kappa, kappa_pos)
    # Each branch gets valid values: a NaN in the branch that is not taken would get into gradients.
    spread, point = torch.where(is_point, 1.0, kappa), torch.where(is_point, kappa, torch.inf)
    resultant_sq = spread.square() + kappa_pos**2 + 2 * spread * kappa_pos * cosines
    resultant = resultant_sq.clamp(min=torch.finfo(torch.float64).tiny).sqrt()
    closed = log_vmf_normalizer(spread, partner.dim) - log_vmf_normalizer(resultant, partner.dim)
    limit = point_similarity(point, cosines, kappa_pos, partner.dim)
    return torch.where(is_point, limit, closed).to(cosine.dtype)
