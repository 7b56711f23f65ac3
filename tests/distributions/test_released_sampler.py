"""The released code's vMF sampler, as a law and a gradient: against rejection sampling done step by step."""

import math

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from pcl.distributions import CosineLaw, Sampler, SamplerGradient, VonMisesFisher

RELEASED = CosineLaw(Sampler.RELEASED)


def rejection_cosines(kappa: float, dim: int, n: int) -> np.ndarray:  # type: ignore[type-arg]
    """Cosines as the release draws them, by rejection, from its formulas."""
    random = np.random.default_rng(0)
    m = dim - 1
    root = math.sqrt(4 * kappa**2 + m**2)
    share = min(max(kappa - 10, 0), 1)
    b = share * m / (4 * kappa) + (1 - share) * (root - 2 * kappa) / m
    a = (m + 2 * kappa + root) / 4
    d = 4 * a * b / (1 + b) - m * math.log(m)
    found: list[np.ndarray] = []  # type: ignore[type-arg]
    while sum(map(len, found)) < n:
        e = random.beta(m / 2, m / 2, 4 * n)
        w = (1 - (1 + b) * e) / (1 - (1 - b) * e)
        t = 2 * a * b / (1 - (1 - b) * e)
        found.append(w[m * np.log(t) - t + d >= np.log(random.random(4 * n))])
    return np.concatenate(found)[:n]


@pytest.mark.parametrize(("kappa", "dim"), [(5.0, 10), (10.5, 10), (16.0, 10), (16.0, 32), (20.0, 64)])
def test_the_law_is_that_of_the_rejection_sampler(kappa: float, dim: int) -> None:
    mu = torch.nn.functional.normalize(torch.ones(dim), dim=0)
    samples = VonMisesFisher(mu, kappa, law=RELEASED).sample((20_000,), torch.Generator().manual_seed(0))
    assert stats.ks_2samp((samples @ mu).numpy(), rejection_cosines(kappa, dim, 20_000)).pvalue > 1e-3


@pytest.mark.parametrize(("dim", "really"), [(10, 15.9), (32, 12.1), (40, 10.0), (64, 0.5)])
def test_nominal_16_is_really(dim: int, really: float) -> None:
    """The concentration that an exact vMF needs for the same mean cosine, where 16 was asked for."""
    mu = torch.nn.functional.normalize(torch.ones(dim), dim=0)
    samples = VonMisesFisher(mu, 16.0, law=RELEASED).sample((100_000,), torch.Generator().manual_seed(0))
    mean = (samples @ mu).mean().item()

    def excess(kappa: float) -> float:
        return float(special.ive(dim / 2, kappa) / special.ive(dim / 2 - 1, kappa)) - mean

    assert optimize.brentq(excess, 1e-3, 100) == pytest.approx(really, abs=0.15)


@pytest.mark.parametrize(("dim", "ratio"), [(10, 0.98), (32, 1.45)])
def test_the_uncorrected_gradient_is_off_by(dim: int, ratio: float) -> None:
    """Gradient of the mean cosine in kappa at 16, relative to the exact one."""
    kappa = torch.tensor(16.0, requires_grad=True)
    mu = torch.nn.functional.normalize(torch.ones(dim), dim=0)
    gradients = []
    for law in (CosineLaw(Sampler.RELEASED, SamplerGradient.UNCORRECTED), CosineLaw()):
        samples = VonMisesFisher(mu, kappa, law=law).rsample((100_000,), torch.Generator().manual_seed(0))
        (gradient,) = torch.autograd.grad((samples @ mu).mean(), kappa)
        gradients.append(gradient.item())
    assert gradients[0] / gradients[1] == pytest.approx(ratio, abs=0.01)


def test_only_samples_follow_the_law() -> None:
    mu = torch.nn.functional.normalize(torch.ones(3, 32), dim=-1)
    exact, released = (VonMisesFisher(mu, 16.0, law=law) for law in (CosineLaw(), RELEASED))
    assert torch.equal(exact.mean, released.mean)
    assert torch.equal(exact.log_prob(mu), released.log_prob(mu))
    assert torch.equal(exact.credible_threshold(0.9), released.credible_threshold(0.9))
    assert released.expand((2, 3)).law is RELEASED
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    a = exact.sample(generator=generator)
    generator.set_state(state)
    assert not torch.equal(a, released.sample(generator=generator))
