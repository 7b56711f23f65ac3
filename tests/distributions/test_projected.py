"""Projected Gaussian and Laplace noise has the stated law."""

import numpy as np
import pytest
import torch
from scipy import stats

from pcl.distributions import ProjectedLaplace, ProjectedNormal


@pytest.mark.parametrize(("family", "scale"), [(ProjectedNormal, 0.1), (ProjectedLaplace, 0.01)])
def test_projected_noise_has_the_stated_width(family, scale: float, generator: torch.Generator) -> None:
    """kappa = 100: standard deviation 1/sqrt(kappa), or Laplace scale 1/kappa; the projection changes it little."""
    mu = torch.eye(4, dtype=torch.float64)[0]
    z = family(mu, 100.0).sample((100_000,), generator=generator)
    across = (z[:, 1] / z[:, 0]).numpy()  # ratio of noise to 1 + noise
    law = stats.norm(0, scale) if family is ProjectedNormal else stats.laplace(0, scale)
    low, high = np.quantile(across, [0.25, 0.75])
    assert low == pytest.approx(law.ppf(0.25), rel=0.03)
    assert high == pytest.approx(law.ppf(0.75), rel=0.03)
    # The tails tell the two apart: 99.9% quantile over quartile is 4.6 for the normal and 9.0 for the Laplace law.
    assert np.quantile(across, 0.999) / high == pytest.approx(law.ppf(0.999) / law.ppf(0.75), rel=0.1)
    assert torch.equal(family(mu, torch.inf).sample(), mu)


def test_projected_gradients_reach_both_parameters() -> None:
    for family in (ProjectedNormal, ProjectedLaplace):
        mu = torch.eye(3)[:1].requires_grad_()
        kappa = torch.tensor([5.0], requires_grad=True)
        (family(mu, kappa).rsample((50,)) * torch.arange(3.0)).sum().backward()
        assert mu.grad.abs().sum() > 0
        assert kappa.grad.abs().sum() > 0
