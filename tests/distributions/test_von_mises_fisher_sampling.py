"""The sampler against the density, by statistics at fixed seeds.

Power: means are held to 4 standard errors of a million samples, of which `test_these_checks_have_power` shows what they
mean: 1% in kappa. The one normal variate that decides mu.z is drawn once from each of 2^14 equally likely strata, whose
mean is off by about 1e-5 standard deviations: nearer than a million independent ones, at a sixtieth of their cost.
"""

import math
from functools import lru_cache
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from pcl.distributions import VonMisesFisher
from pcl.distributions.cosine import cosine_table
from pcl.distributions.von_mises_fisher import _place, _place_around_one_mode
from pcl.mathematics.special import bessel_ratio
from tests.support.oracles import CosineLaw, unit_vectors
from tests.support.torch_state import synchronization_forbidden

DIMS = (2, 3, 10, 32, 64, 512)
KAPPAS = (0.0, 0.5, 4.0, 16.0, 100.0, 2000.0, 1e6)
N_STRATA, N_OF_THE_BAR = 2**14, 1_000_000
AT_ONCE = 2**18  # numbers, which fit into a cache


def exact_mean_and_slope(kappa: float, dim: int) -> tuple[float, float]:
    argument = torch.tensor(kappa, dtype=torch.float64, requires_grad=True)
    ratio = bessel_ratio(argument, dim)
    return ratio.item(), torch.autograd.grad(ratio, argument)[0].item()


def mean_and_error(values: list[torch.Tensor]) -> tuple[float, float]:
    joined = torch.cat(values).double()
    return joined.mean().item(), joined.std().item() / math.sqrt(N_OF_THE_BAR)


def sampled_cosines_and_slopes(
    kappa: float, dim: int, seed: int, dtype: torch.dtype = torch.float64
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Mean of mu.z and of its pathwise derivative in kappa, and the standard errors of a million samples."""
    generator = torch.Generator().manual_seed(seed)
    mu = unit_vectors(dim, generator=generator).to(dtype)
    cosines, slopes = [], []
    within = torch.rand(N_STRATA, generator=generator, dtype=torch.float64)
    deciding = torch.special.ndtri((torch.arange(N_STRATA) + within) / N_STRATA).to(dtype)
    noise = torch.randn(min(N_STRATA, AT_ONCE // dim), dim, generator=generator, dtype=dtype)
    for chunk in deciding.split(len(noise)):
        kappas = torch.full((len(chunk),), kappa, dtype=dtype, requires_grad=True)
        noise[: len(chunk), 0] = chunk
        z = VonMisesFisher(mu, kappas, validate_args=False)._rsample_by(noise[: len(chunk)])
        cosine = z @ mu
        cosine.sum().backward()
        cosines.append(cosine.detach())
        slopes.append(kappas.grad)
    return mean_and_error(cosines), mean_and_error(slopes)


# Rounding shows in single precision where kappa is large: 1 - mu.z is D / (2 kappa).
@pytest.mark.parametrize(
    ("kappa", "dtype"),
    [(kappa, dtype) for kappa in KAPPAS for dtype in (torch.float32, torch.float64)
     if kappa < 1000 or dtype is torch.float64],
)  # fmt: skip
@pytest.mark.parametrize("dim", DIMS)
def test_mean_cosine_and_its_gradient(dim: int, kappa: float, dtype: torch.dtype) -> None:
    (mean, mean_error), (slope, slope_error) = sampled_cosines_and_slopes(kappa, dim, seed=dim, dtype=dtype)
    exact_mean, exact_slope = exact_mean_and_slope(kappa, dim)
    assert abs(mean - exact_mean) < 4 * mean_error
    assert abs(slope - exact_slope) < 4 * slope_error
    assert slope_error < 0.02 * exact_slope  # the check would see a gradient that is off by a tenth


@pytest.mark.parametrize("kappa", [4.0, 16.0, 100.0])
@pytest.mark.parametrize("dim", [3, 10, 32])
def test_these_checks_have_power(dim: int, kappa: float) -> None:
    (mean, mean_error), _ = sampled_cosines_and_slopes(kappa * 1.01, dim, seed=dim)
    assert abs(mean - exact_mean_and_slope(kappa, dim)[0]) > 4 * mean_error


law_of = lru_cache(maxsize=4)(CosineLaw)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kappa", [0.0, 0.5, 16.0, 2000.0])
@pytest.mark.parametrize(("dim", "method"), [*product([2, 3, 10], ["sample", "rsample"]), (300, "sample")])
def test_cosine_follows_its_cdf(
    dim: int, kappa: float, method: str, dtype: torch.dtype, generator: torch.Generator
) -> None:
    """At 300 dimensions, where both methods are the same, a kappa that is off by 8% is seen at 16, by 1% at 2000."""
    mu = unit_vectors(dim, generator=generator, dtype=dtype)
    z = getattr(VonMisesFisher(mu, kappa), method)((20_000 if dim == 300 else 50_000,), generator=generator)
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(len(z), dtype=z.dtype))
    # The angle by the chord: in float32 a cosine near 1 has no digits left.
    angle = 2 * torch.asin((z.double() - mu.double()).norm(dim=-1).clamp(max=2) / 2)
    assert stats.kstest(angle.numpy(), law_of(kappa, dim).angle_cdf).pvalue > 1e-3


@pytest.mark.parametrize(("dim", "method"), [*product([2, 3, 10, 32], ["sample", "rsample"]), (300, "sample")])
def test_tangent_direction_is_uniform_and_independent_of_the_cosine(
    dim: int, method: str, generator: torch.Generator
) -> None:
    mu = unit_vectors(dim, generator=generator)
    z = getattr(VonMisesFisher(mu, 5.0), method)((20_000,), generator=generator)
    cosine = z @ mu
    tangent = torch.nn.functional.normalize(z - cosine.unsqueeze(-1) * mu, dim=-1)
    across = unit_vectors(dim, generator=generator)
    across = torch.nn.functional.normalize(across - (across @ mu) * mu, dim=0)
    coordinate = (tangent @ across).numpy()
    if dim == 2:  # a sign
        assert abs(coordinate.mean()) < 4 / math.sqrt(len(coordinate))
        np.testing.assert_allclose(np.abs(coordinate), 1, atol=1e-9)
        coordinate = coordinate + np.random.default_rng(0).uniform(0, 1e-3, len(coordinate))
    else:
        squared = stats.kstest(coordinate**2, stats.beta(0.5, (dim - 2) / 2).cdf)
        assert squared.pvalue > 1e-3
        assert abs((coordinate > 0).mean() - 0.5) < 4 * 0.5 / math.sqrt(len(coordinate))
    assert stats.spearmanr(coordinate, cosine.numpy()).pvalue > 1e-3


def test_gradient_in_mu_is_that_of_the_mean(generator: torch.Generator) -> None:
    """E[b.z] = A_D(kappa) b.mu; on the sphere its gradient is A_D(kappa) times the tangent part of b."""
    n, kappa = 100_000, 7.0
    for dim in (2, 3, 10):
        mu, b = unit_vectors(dim, generator=generator), unit_vectors(dim, generator=generator)
        mus = mu.repeat(n, 1).requires_grad_()
        (VonMisesFisher(mus, kappa, validate_args=False).rsample(generator=generator) @ b).sum().backward()
        project = torch.eye(dim, dtype=torch.float64) - torch.outer(mu, mu)
        gradients = mus.grad @ project
        expected = exact_mean_and_slope(kappa, dim)[0] * (project @ b)
        error = gradients.std(0) / math.sqrt(n)
        assert ((gradients.mean(0) - expected).abs() < 4 * error + 1e-12).all()
        assert gradients.abs().max() < 10  # bounded, also next to the poles


@pytest.mark.parametrize(("dim", "tolerance"), [(2, 1e-3), (3, 1e-4), (10, 1e-6), (64, 1e-6), (1024, 1e-6)])
def test_pathwise_derivative_is_the_implicit_one(dim: int, tolerance: float) -> None:
    """Point by point, not only in the mean: the tolerance is needed in the tails of the smallest dimensions alone."""
    t = torch.linspace(-3, 3, 7, dtype=torch.float64)
    for kappa in (0.7, 5.0, 40.0, 3000.0):
        argument = torch.full_like(t, kappa, requires_grad=True)
        cosine, sine = cosine_table(dim, torch.float64, torch.device("cpu")).polar(t, argument)
        cosine.sum().backward()
        law = CosineLaw(kappa, dim)
        expected = [law.cosine_slope(theta) for theta in torch.atan2(sine, cosine).tolist()]
        np.testing.assert_allclose(argument.grad.numpy(), expected, rtol=tolerance)


@pytest.mark.parametrize("dim", [2, 3, 10, 64, 1024])
def test_bias_of_the_pathwise_derivative(dim: int) -> None:
    """E[dw/dkappa] = A_D'(kappa) without sampling: by the trapezoid rule over the normal variate."""
    t = torch.linspace(-8, 8, 20_001, dtype=torch.float64)
    weight = torch.exp(-t.square() / 2)
    weight /= weight.sum()
    for kappa in (0.0, 0.1, 1.0, 5.0, 9.0, 30.0, 300.0, 1e5):
        argument = torch.full_like(t, kappa, requires_grad=True)
        cosine, _ = cosine_table(dim, torch.float64, torch.device("cpu")).polar(t, argument)
        cosine.sum().backward()
        mean, slope = exact_mean_and_slope(kappa, dim)
        assert (weight @ argument.grad).item() == pytest.approx(slope, rel=1e-6)
        assert (weight @ cosine.detach()).item() == pytest.approx(mean, abs=1e-8)


def test_quantiles_hit_their_probabilities() -> None:
    p = torch.tensor([1e-4, 0.01, 0.05, 0.3, 0.5, 0.9, 0.999], dtype=torch.float64)
    for dim in (2, 3, 10, 64, 1024):
        for kappa in (0.0, 0.3, 4.0, 30.0, 500.0, 1e5):
            distribution = VonMisesFisher(torch.eye(dim, dtype=torch.float64)[0], kappa)
            quantile = distribution.cosine_quantile(p)
            np.testing.assert_allclose(CosineLaw(kappa, dim).cosine_cdf(quantile.numpy()), p.numpy(), atol=1e-7)
            torch.testing.assert_close(distribution.credible_threshold(p), distribution.cosine_quantile(1 - p))


def test_quantiles_at_the_ends_and_bad_probabilities() -> None:
    distribution = VonMisesFisher(torch.eye(4)[0], torch.tensor([0.0, 3.0, torch.inf]))
    assert distribution.cosine_quantile(0.0).tolist() == [-1, -1, -1]
    assert distribution.cosine_quantile(1.0).tolist() == [1, 1, 1]
    assert distribution.cosine_quantile(0.5)[2].item() == 1
    assert abs(distribution.cosine_quantile(0.5)[0].item()) < 1e-6
    with pytest.raises(ValueError, match="`0 <= p <= 1` must hold"):
        distribution.cosine_quantile(1.5)
    with pytest.raises(ValueError, match="differentiable in kappa only"):
        distribution.cosine_quantile(torch.tensor(0.5, requires_grad=True))


@pytest.mark.parametrize("dim", [2, 3, 10, 64])
def test_one_mode_path_equals_the_general_one(dim: int, generator: torch.Generator) -> None:
    for sign in (1, -1):
        mu = sign * unit_vectors(dim, generator=generator).abs()
        noise = torch.randn(dim, 500, dtype=torch.float64, generator=generator)
        cosine, sine = cosine_table(dim, torch.float64, torch.device("cpu")).polar(noise[0], torch.tensor(9.0).double())
        general = _place(noise.T, cosine, sine, mu)
        fast = torch.empty(500, dim, dtype=torch.float64)
        _place_around_one_mode(noise.clone(), cosine, sine, mu, out=fast)
        torch.testing.assert_close(fast, general, rtol=0, atol=1e-13)
        torch.testing.assert_close(general @ mu, cosine, rtol=0, atol=1e-13)


def test_row_path_equals_the_general_one(generator: torch.Generator) -> None:
    table = cosine_table(10, torch.float64, torch.device("cpu"))
    kappa = torch.tensor([0.0, 1.0, 20.0, 1e6], dtype=torch.float64)
    t = torch.randn(1000, 4, dtype=torch.float64, generator=generator)
    outputs = []
    for shape in ((1000, 4), (1, 4)):  # one kappa a point, and one a column: 16 and 4 coefficients
        argument = kappa.expand(shape).clone().requires_grad_()
        cosine, sine = table.polar(t, argument)
        (cosine * t + sine).sum().backward()
        outputs.append((cosine.detach(), sine.detach(), argument.grad.sum(0)))
    for general, rows in zip(*outputs, strict=True):
        torch.testing.assert_close(rows, general, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [2, 3, 10, 1024])
def test_extreme_concentrations(dim: int, dtype: torch.dtype, generator: torch.Generator) -> None:
    mu = unit_vectors(dim, generator=generator, dtype=dtype)
    kappa = torch.tensor([0.0, 1e-30, 1e-3, 1e8, 1e30, torch.inf], dtype=dtype, requires_grad=True)
    z = VonMisesFisher(mu, kappa).rsample((1000,), generator=generator)
    assert torch.isfinite(z).all()
    torch.testing.assert_close(z.norm(dim=-1), torch.ones_like(z[..., 0]))
    torch.testing.assert_close(z[:, -1], mu.expand(1000, -1))
    (z @ mu).sum().backward()
    assert torch.isfinite(kappa.grad).all()
    assert kappa.grad[-1] == 0
    # 2 kappa (1 - mu.z) = kappa |z - mu|^2 is chi-squared with D - 1 degrees of freedom; float32 must keep it at 1e8.
    scaled = 1e8 * (z[:, 3].detach() - mu).square().sum(-1)
    assert scaled.mean().item() == pytest.approx(dim - 1, rel=5 * math.sqrt(2 / (dim - 1) / 1000) + 0.01)


def test_a_normal_variate_of_zero_leaves_no_sample_inside_the_circle() -> None:
    noise = torch.zeros(2, 1)
    cosine, sine = torch.tensor([0.6]), torch.tensor([0.8])
    mu = torch.eye(2)[0]
    out = torch.empty(1, 2)
    _place_around_one_mode(noise.clone(), cosine, sine, mu, out=out)
    for z in (_place(noise.clone().T, cosine, sine, mu), out):
        assert z.norm().item() == pytest.approx(1)


def test_lowered_precision_of_products_keeps_samples_on_the_sphere() -> None:
    distribution = VonMisesFisher(torch.nn.functional.normalize(torch.arange(1.0, 11.0), dim=0), 20.0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        lowered = distribution.sample((1000,))
    finally:
        torch.set_float32_matmul_precision(before)
    with torch.autocast("cpu", torch.bfloat16):
        autocast = distribution.sample((1000,))
    for z in (lowered, autocast):
        torch.testing.assert_close(z.norm(dim=-1), torch.ones(1000))


def test_nan_flows_through_unchecked_sampling() -> None:
    mu = torch.eye(5)[:2]
    z = VonMisesFisher(mu, torch.tensor([torch.nan, 3.0]), validate_args=False).sample((4,))
    assert torch.isnan(z[:, 0]).all()
    assert torch.isfinite(z[:, 1]).all()


def test_same_seed_same_samples_without_touching_the_global_generator() -> None:
    distribution = VonMisesFisher(torch.eye(6)[0], 3.0)
    before = torch.get_rng_state()
    for method in (distribution.sample, distribution.rsample):
        a, b = (method((10,), generator=torch.Generator().manual_seed(1)) for _ in range(2))
        assert torch.equal(a, b)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.gpu
def test_sampling_never_waits_for_the_gpu() -> None:
    mu = unit_vectors(64, 10, generator=torch.Generator().manual_seed(0)).cuda()
    kappa = torch.full((64,), 20.0, device="cuda", dtype=torch.float64, requires_grad=True)
    distribution = VonMisesFisher(mu, kappa)
    single = VonMisesFisher(mu[0], kappa[0].detach())
    distribution.rsample((300,)), single.sample((300,))  # builds the table
    with synchronization_forbidden():
        distribution.rsample((300,)).sum().backward()
        distribution.sample((3,))
        z = single.sample((300,))
        with pytest.raises(RuntimeError, match="synchronizing"):  # the mode would have seen it
            z.sum().item()
