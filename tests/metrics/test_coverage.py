"""Coverage of true latents by credible caps: nominal for a perfect encoder, however rotated, alone."""

import math
from typing import cast

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pcl.distributions import VonMisesFisher
from pcl.encoders import Encoder
from pcl.metrics import names
from pcl.metrics.coverage import aligned, least_squares
from pcl.tasks import Family, ToyTask
from pcl.tasks.judging import coverage_metrics

LEVELS = {key: level for level, key in names.COVERAGE.items()}


def rotation(dim: int, generator: torch.Generator) -> Tensor:
    return torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))[0].float()


def judged(kappa_factor: float, dim: int, generator: torch.Generator, n: int = 4000) -> dict[str, float]:
    """Metrics of an encoder that is right up to a rotation and a factor of kappa."""
    mu = normalize(torch.randn(1, n, dim, generator=generator), dim=-1)
    kappa = 16 + 16 * torch.rand(1, n, generator=generator)
    z = VonMisesFisher(mu, kappa).sample(generator=generator)
    learned = VonMisesFisher(normalize(mu @ rotation(dim, generator), dim=-1), kappa * kappa_factor)
    return coverage_metrics(learned, mu, z)[0]


@pytest.mark.parametrize("dim", [2, 10, 64])
def test_a_perfect_encoder_covers_as_its_caps_say(dim: int, generator: torch.Generator) -> None:
    for key, share in judged(1.0, dim, generator).items():
        error = math.sqrt(LEVELS[key] * (1 - LEVELS[key]) / 4000)
        assert abs(share - LEVELS[key]) < 4.5 * error


@pytest.mark.parametrize(("factor", "sign"), [(4.0, -1), (0.25, 1)])
def test_a_kappa_of_the_wrong_size_shows(factor: float, sign: int, generator: torch.Generator) -> None:
    for key, share in judged(factor, 10, generator).items():
        assert sign * (share - LEVELS[key]) > 0.04


def test_alignment_finds_rotations_and_reflections_of_each_run(generator: torch.Generator) -> None:
    mu_true = normalize(torch.randn(3, 200, 5, generator=generator), dim=-1)
    maps = torch.stack([rotation(5, generator) for _ in range(3)])
    maps[1, :, 0] *= -1  # one of them changes its handedness
    torch.testing.assert_close(aligned(mu_true @ maps, mu_true), mu_true)
    noisy = normalize(mu_true @ maps + 0.1 * torch.randn(mu_true.shape, generator=generator), dim=-1)
    assert (aligned(noisy, mu_true) * mu_true).sum(-1).mean() > (noisy * mu_true).sum(-1).mean()


def test_coverage_is_undefined_without_a_common_sphere_or_a_finite_mu(generator: torch.Generator) -> None:
    mu_true = normalize(torch.randn(2, 50, 4, generator=generator), dim=-1)
    wider = VonMisesFisher(normalize(torch.randn(2, 50, 6, generator=generator), dim=-1), torch.full((2, 50), 20.0))
    assert all(math.isnan(share) for run in coverage_metrics(wider, mu_true, mu_true) for share in run.values())
    broken = mu_true.clone()
    broken[0, 3] = math.nan
    posterior = VonMisesFisher(broken, torch.full((2, 50), 20.0), validate_args=False)
    first, second = coverage_metrics(posterior, mu_true, mu_true)
    assert all(map(math.isnan, first.values()))
    assert set(second.values()) == {1.0}


def perfect(task: ToyTask) -> Encoder:
    """An encoder that knows the truth."""
    return cast(Encoder, lambda x: VonMisesFisher(*task.truth.parameters_of(x)))


@pytest.mark.parametrize("family", list(Family))
def test_every_family_has_a_coverage_and_each_run_its_own_whoever_is_beside_it(family: Family) -> None:
    config = ToyTask.Config(dim=4, dim_x=3, n_eval=500, largest_cosine=0.9, family=family)
    alone, beside = config.build([5]), config.build([4, 5])
    (metrics,) = alone.evaluate(perfect(alone))
    torch.testing.assert_close(beside.z_true[1], alone.z_true[0])
    torch.testing.assert_close(beside.spread100_true[1], alone.spread100_true[0])
    other, same = beside.evaluate(perfect(beside))
    assert same == pytest.approx(metrics, rel=1e-4, abs=1e-6, nan_ok=True)
    if family is Family.VMF:  # seeds have noise of their own: their errors average out
        assert [other[key] for key in LEVELS] != [metrics[key] for key in LEVELS]
    shares = [metrics[key] for key in LEVELS]
    assert shares == sorted(shares)
    assert all(0 <= share <= 1 for share in shares)
    if family is Family.VMF:
        assert [round(share, 1) for share in shares] == [0.5, 0.9, 1.0]
        assert (metrics[names.KAPPA_SLOPE], metrics[names.KAPPA_INTERCEPT]) == pytest.approx((1, 0), abs=1e-6)
    assert (names.KAPPA_SLOPE in metrics) is (family is not Family.DIRAC)


def test_the_line_through_a_constant_is_undefined() -> None:
    assert all(map(math.isnan, least_squares(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 3.0]))))
