"""Integrated partners and the fitted ELK normaliser, straight from their formulas."""

import math

import pytest
import torch

from pcl.distributions import VonMisesFisher
from pcl.losses import ELK, AnchorSamples, ElkNormalizer, MCInfoNCE, PartnerSamples, PositiveWeight
from pcl.losses.mc_info_nce import log_mean_similarity
from tests.support.oracles import unit_vectors


def test_integrated_similarity_is_the_mean_over_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    mu = torch.nn.functional.normalize(torch.randn(6, 10, generator=generator, dtype=torch.float64), dim=-1)
    partner = VonMisesFisher(mu, torch.linspace(5, 60, 6, dtype=torch.float64))
    z = partner.sample(generator=generator)
    samples = partner.sample((50_000,), generator)
    similarities = torch.exp(20 * (samples * z).sum(-1))
    mean, error = similarities.mean(0), similarities.std(0) / math.sqrt(len(samples))
    closed = log_mean_similarity(partner, (z * mu).sum(-1), 20.0).exp()
    assert ((closed - mean).abs() < 4 * error).all()


def test_integrated_loss_is_the_limit_of_drawn_ones() -> None:
    """Many negatives, each drawn many times: the denominators converge, and so do the losses."""
    generator = torch.Generator().manual_seed(0)

    def posterior(*batch: int) -> VonMisesFisher:
        return VonMisesFisher(unit_vectors(*batch, 6, generator=generator), 20.0)

    anchor, positive, negatives = posterior(4), posterior(4), posterior(4, 64)
    integrated = MCInfoNCE.Config(
        n_samples=4096, positive_weight=PositiveWeight.ZERO, partners=PartnerSamples.INTEGRATED, kappa_pos=8.0
    ).build()
    drawn = MCInfoNCE.Config(n_samples=4096, positive_weight=PositiveWeight.ZERO, kappa_pos=8.0).build()
    repeated = VonMisesFisher(negatives.mu.repeat(1, 8, 1), negatives.kappa.repeat(1, 8))
    a = integrated(anchor, positive, negatives, generator=generator)
    b = drawn(anchor, positive, repeated, generator=generator)
    torch.testing.assert_close(a, b, atol=0.05, rtol=0.02)


def test_integrated_needs_infinitely_many_negatives() -> None:
    with pytest.raises(ValueError, match="positive_weight"):
        MCInfoNCE.Config(partners=PartnerSamples.INTEGRATED)


def test_fitted_elk_is_the_releases_formula() -> None:
    mu = torch.nn.functional.normalize(torch.eye(10)[:3] + 0.3, dim=-1)
    posteriors = VonMisesFisher(mu, torch.tensor([16.0, 20.0, 32.0]))
    others = VonMisesFisher(mu.roll(1, 0), torch.tensor([18.0, 25.0, 30.0]))
    loss = ELK.Config(kappa_pos=1.0, normalizer=ElkNormalizer.FITTED).build()

    def log_c(kappa: float) -> float:
        return float(-1.27184 + 0.67365 * kappa - 0.98726 * kappa**1.1)

    for i in range(3):
        k1, k2 = posteriors.kappa[i].item(), others.kappa[i].item()
        resultant = (k1 * posteriors.mu[i] + k2 * others.mu[i]).norm().item()
        expected = log_c(k1) + log_c(k2) - log_c(resultant)
        assert loss._similarity(posteriors, others)[i].item() == pytest.approx(expected, rel=1e-5)


def test_fitted_elk_knows_six_dimensions() -> None:
    mu = torch.nn.functional.normalize(torch.ones(2, 7), dim=-1)
    posteriors = VonMisesFisher(mu, 20.0)
    negatives = VonMisesFisher(mu.unsqueeze(1), torch.full((2, 1), 20.0))
    with pytest.raises(ValueError, match="4, 8, 10, 16, 32, 64, but got 7"):
        ELK.Config(normalizer=ElkNormalizer.FITTED).build()(posteriors, posteriors, negatives)


@pytest.mark.slow
def test_guided_samples_give_the_same_loss_with_far_fewer() -> None:
    """Value and gradient are those of very many of the anchors' own; eight are nearer to them than 32 of those."""
    generator = torch.Generator().manual_seed(0)
    modes = unit_vectors(8, 10, generator=generator)
    negatives = VonMisesFisher(unit_vectors(1, 64, 10, generator=generator), 22.0)
    parameters = [
        modes.clone().requires_grad_(), torch.full((8,), 22.0, dtype=modes.dtype, requires_grad=True),
    ]  # fmt: skip

    def value_and_gradients(anchors: AnchorSamples, n_samples: int, repeats: int) -> list[torch.Tensor]:
        config = MCInfoNCE.Config(
            n_samples=n_samples, positive_weight=PositiveWeight.ZERO, partners=PartnerSamples.INTEGRATED,
            anchors=anchors,
        )  # fmt: skip
        total = torch.zeros((), dtype=modes.dtype)
        for _ in range(repeats):
            mu = torch.nn.functional.normalize(parameters[0], dim=-1)
            near = torch.nn.functional.normalize(mu + 1.5 * mu.roll(1, 0).detach(), dim=-1)
            anchor, positive = VonMisesFisher(mu, parameters[1]), VonMisesFisher(near, parameters[1].roll(1))
            total = total + config.build()(anchor, positive, negatives, generator=generator).mean() / repeats
        return [total.detach(), *torch.autograd.grad(total, parameters)]

    many = value_and_gradients(AnchorSamples.POSTERIOR, 16_384, 1)
    limit = value_and_gradients(AnchorSamples.GUIDED, 1024, 2)
    own = value_and_gradients(AnchorSamples.POSTERIOR, 32, 64)
    few = value_and_gradients(AnchorSamples.GUIDED, 8, 64)
    assert limit[0].item() == pytest.approx(many[0].item(), abs=0.03)
    for ours, theirs in zip(limit[1:], many[1:], strict=True):
        assert (ours - theirs).norm() < 0.15 * theirs.norm()
    assert abs(few[0] - limit[0]) < 0.5 * abs(own[0] - limit[0])
    for ours, theirs in zip(few[1:], limit[1:], strict=True):
        assert (ours - theirs).norm() < 0.15 * theirs.norm()


def test_guided_samples_need_integrated_partners() -> None:
    with pytest.raises(ValueError, match="`partners` must be integrated where anchors are guided, but got drawn"):
        MCInfoNCE.Config(anchors=AnchorSamples.GUIDED)
