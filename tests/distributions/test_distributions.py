"""Laws every distribution here obeys, densities against SciPy, divergences against quadrature."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from pcl.distributions import ProjectedLaplace, ProjectedNormal, SphereUniform, VonMisesFisher, kl_divergence
from pcl.mathematics.special import bessel_ratio
from tests.support.oracles import CosineLaw, unit_vectors

DIRECTIONAL = (VonMisesFisher, ProjectedNormal, ProjectedLaplace)


def example(family, *batch: int, dim: int = 5, dtype: torch.dtype = torch.float64):
    generator = torch.Generator().manual_seed(3)
    mu = unit_vectors(*batch, dim, generator=generator, dtype=dtype)
    kappa = 1 + 20 * torch.rand(batch, generator=generator, dtype=dtype)
    return family(mu, kappa)


@pytest.mark.parametrize("family", DIRECTIONAL)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_dtype_and_unit_norm(family, dtype: torch.dtype) -> None:
    distribution = example(family, 3, 2, dtype=dtype)
    assert distribution.batch_shape == (3, 2)
    assert distribution.event_shape == (5,)
    for z in (distribution.sample((7,)), distribution.rsample((7,)), distribution.expand([7, 3, 2]).sample()):
        assert z.shape == (7, 3, 2, 5)
        assert z.dtype == dtype
        torch.testing.assert_close(z.norm(dim=-1), torch.ones(7, 3, 2, dtype=dtype))
    assert distribution.sample().shape == (3, 2, 5)
    assert distribution.sample((0,)).shape == (0, 3, 2, 5)
    assert torch.equal(distribution.mode, distribution.mu)


@pytest.mark.parametrize("family", DIRECTIONAL)
def test_expand_pickle_and_copy(family) -> None:
    distribution = example(family, 2)
    expanded = distribution.expand([4, 2])
    assert type(expanded) is family
    assert expanded.batch_shape == (4, 2)
    assert torch.equal(expanded.kappa[3], distribution.kappa)
    for twin in (pickle.loads(pickle.dumps(distribution)), copy.deepcopy(distribution)):
        assert torch.equal(twin.mu, distribution.mu)
        assert torch.equal(
            twin.sample(generator=torch.Generator().manual_seed(1)),
            distribution.sample(generator=torch.Generator().manual_seed(1)),
        )


@pytest.mark.parametrize("family", DIRECTIONAL)
def test_broadcast_of_kappa(family) -> None:
    mu = torch.eye(4)[:3]
    assert family(mu, 2.0).kappa.shape == (3,)
    assert family(mu[0], torch.ones(6)).mu.shape == (6, 4)
    assert family(torch.eye(3, dtype=torch.float64), 123.4).kappa[0].item() == 123.4  # not by way of float32
    with pytest.raises(ValueError, match=r"`kappa` must broadcast .* got mu \(3, 4\) and kappa \(2,\)"):
        family(mu, torch.ones(2))


@pytest.mark.parametrize("family", DIRECTIONAL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(family, dtype: torch.dtype, generator: torch.Generator) -> None:
    half = torch.nn.functional.normalize(torch.randn(100, 16, generator=generator), dim=-1).to(dtype)
    distribution = family(half, torch.full((100,), 7.0, dtype=dtype))
    z = distribution.sample((10,))
    assert z.dtype == torch.float32
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(10, 100))
    torch.testing.assert_close(distribution.mu, half.float(), rtol=0.01, atol=0.01)


@pytest.mark.parametrize("family", DIRECTIONAL)
def test_bad_parameters_are_named_with_their_entry(family) -> None:
    mu = torch.eye(3).expand(2, 3, 3).clone()
    rule = "kappa >= 0" if family is VonMisesFisher else "kappa > 0"
    kappa = torch.ones(2, 3)
    for bad in (torch.nan, -1.0):
        kappa[1, 2] = bad
        with pytest.raises(ValueError, match=rf"`{rule}` must hold, but kappa\[1, 2\] is {bad:g}"):
            family(mu, kappa)
    with pytest.raises(ValueError, match=r"`kappa >.*, but kappa is -3"):
        family(mu, -3.0)
    mu[0, 1] = torch.tensor([0.0, 1.25, 0.0])
    with pytest.raises(ValueError, match=r"unit sphere, but mu\[0, 1\] has norm 1\.25; divide by the norm first"):
        family(mu, 1.0)
    mu[0, 1, 0] = torch.nan
    with pytest.raises(ValueError, match=r"mu\[0, 1\] has norm nan"):
        family(mu, 1.0)
    with pytest.raises(ValueError, match="at least 2 entries, but got shape"):
        family(torch.ones(3, 1), 1.0)
    assert family(mu, kappa, validate_args=False).batch_shape == (2, 3)


def test_zero_concentration_where_it_is_allowed() -> None:
    mu = torch.eye(3)[0]
    assert VonMisesFisher(mu, 0.0).sample().shape == (3,)
    with pytest.raises(ValueError, match="`kappa > 0` must hold, but kappa is 0"):
        ProjectedNormal(mu, 0.0)


@pytest.mark.parametrize(
    ("dim", "kappa"),
    # without D = 512 and kappa < 1, where SciPy's normaliser underflows
    [(dim, kappa) for dim in (2, 3, 10, 64, 512) for kappa in (1e-3, 0.5, 16.0, 1000.0, 1e5) if dim < 512 or kappa > 1],
)
def test_log_prob_and_entropy_against_scipy(dim: int, kappa: float, generator: torch.Generator) -> None:
    mu, z = unit_vectors(dim, generator=generator), unit_vectors(20, dim, generator=generator)
    reference = stats.vonmises_fisher(mu.numpy(), kappa)
    ours = VonMisesFisher(mu, kappa)
    np.testing.assert_allclose(ours.log_prob(z).numpy(), reference.logpdf(z.numpy()), rtol=1e-9, atol=1e-9)
    assert ours.entropy().item() == pytest.approx(reference.entropy(), rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("kappa", [0.0, 0.5, 16.0, 3000.0])
@pytest.mark.parametrize("dim", [2, 3, 10, 64])
def test_density_integrates_to_one(dim: int, kappa: float) -> None:
    """Over the angle: density times the area of the circle of latitude, |S^{D-2}| sin^{D-2}(theta)."""
    law = CosineLaw(kappa, dim)
    theta = law.theta[::2]
    z = torch.zeros(len(theta), dim, dtype=torch.float64)
    z[:, 0], z[:, 1] = torch.from_numpy(np.cos(theta)), torch.from_numpy(np.sin(theta))
    density = VonMisesFisher(torch.eye(dim, dtype=torch.float64)[0], kappa).log_prob(z).exp().numpy()
    circle = 2 * math.pi ** ((dim - 1) / 2) / math.gamma((dim - 1) / 2) * np.sin(theta) ** (dim - 2)
    assert integrate.simpson(density * circle, x=theta) == pytest.approx(1, abs=1e-7)


def test_float32_log_prob_keeps_its_digits_at_high_concentration(generator: torch.Generator) -> None:
    mu = unit_vectors(10, generator=generator, dtype=torch.float32)
    mu64 = torch.nn.functional.normalize(mu.double(), dim=0)
    z = VonMisesFisher(mu, 1e6).sample((1000,), generator=generator)
    single = VonMisesFisher(mu, 1e6).log_prob(z)
    double = VonMisesFisher(mu64, 1e6).log_prob(torch.nn.functional.normalize(z.double(), dim=-1))
    assert (single - double).abs().max() < 0.01  # the plain form log C + kappa mu.z is off by 0.1


def test_point_mass() -> None:
    mu = torch.eye(3)
    distribution = VonMisesFisher(mu, torch.inf)
    assert distribution.log_prob(mu).tolist() == [torch.inf] * 3
    assert distribution.log_prob(mu.roll(1, 0)).tolist() == [-torch.inf] * 3
    assert distribution.entropy().tolist() == [-torch.inf] * 3
    assert torch.equal(distribution.mean, mu)
    assert torch.equal(distribution.sample((5,)), mu.expand(5, 3, 3))


def test_limits_of_infinite_concentration_between_two() -> None:
    mu, other = torch.eye(4, dtype=torch.float64)[0], torch.nn.functional.normalize(torch.ones(4).double(), dim=0)
    point, wide = VonMisesFisher(mu, torch.inf), VonMisesFisher(other, 5.0)
    elsewhere = VonMisesFisher(other, torch.inf)
    for p, q in ((point, wide), (wide, point), (VonMisesFisher(mu, 0.0), point), (point, elsewhere)):
        assert kl_divergence(p, q).item() == torch.inf
    assert kl_divergence(point, point).item() == 0
    for p, q in ((point, wide), (wide, point)):
        assert p.log_expected_likelihood(q).item() == pytest.approx(wide.log_prob(mu).item(), rel=1e-12)
    assert point.log_expected_likelihood(point).item() == torch.inf
    assert point.log_expected_likelihood(elsewhere).item() == -torch.inf


def test_a_point_mass_spoils_no_gradient_of_its_neighbours() -> None:
    kappa = torch.tensor([torch.inf, 5.0], dtype=torch.float64, requires_grad=True)
    mu = torch.eye(3, dtype=torch.float64)[:2].requires_grad_()
    distribution = VonMisesFisher(mu, kappa)
    z = torch.eye(3, dtype=torch.float64)[1]
    for value in (
        distribution.log_prob(z),
        distribution.entropy(),
        kl_divergence(distribution, VonMisesFisher(z, 2.0)),
        distribution.log_expected_likelihood(VonMisesFisher(z, 2.0)),
    ):
        gradients = torch.autograd.grad(value[1], (mu, kappa), allow_unused=True)
        assert all(torch.isfinite(gradient).all() for gradient in gradients if gradient is not None)
        assert gradients[1][1] != 0


def test_float32_divergence_does_not_cancel() -> None:
    mu = torch.eye(10)[0]
    for kappa in (10.0, 1e3, 1e6):
        single = kl_divergence(VonMisesFisher(mu, kappa), VonMisesFisher(mu, kappa * 1.01)).item()
        double = kl_divergence(VonMisesFisher(mu.double(), kappa), VonMisesFisher(mu.double(), kappa * 1.01)).item()
        assert single > 0
        assert single == pytest.approx(double, rel=1e-3)


def test_values_off_the_sphere_are_refused() -> None:
    with pytest.raises(ValueError, match="support"):
        VonMisesFisher(torch.eye(3)[0], 1.0).log_prob(torch.ones(3))
    with pytest.raises(ValueError, match="support"):
        SphereUniform(3).log_prob(torch.ones(3))


def test_mean_and_variance_against_samples(generator: torch.Generator) -> None:
    for kappa in (0.0, 3.0, 80.0):
        distribution = VonMisesFisher(unit_vectors(6, generator=generator), kappa)
        z = distribution.sample((400_000,), generator=generator)
        torch.testing.assert_close(z.mean(0), distribution.mean, rtol=0, atol=4 / math.sqrt(6 * 400_000))
        torch.testing.assert_close(z.var(0), distribution.variance, rtol=0.01, atol=0)
    # The variances of all coordinates add up to 1 - A^2.
    ratio = bessel_ratio(distribution.kappa, 6)
    torch.testing.assert_close(distribution.variance.sum(-1), 1 - ratio**2, rtol=1e-10, atol=0)


def test_variance_is_differentiable() -> None:
    kappa = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    mu = torch.eye(4, dtype=torch.float64)[0]
    assert torch.autograd.gradcheck(lambda k: VonMisesFisher(mu, k).variance, kappa)
    expected = VonMisesFisher(mu, 5.0).variance
    with torch.no_grad():
        assert torch.equal(VonMisesFisher(mu, kappa).variance, expected)
    with torch.inference_mode():
        assert torch.equal(VonMisesFisher(mu, 5.0).variance, expected)


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_kl_divergences_against_quadrature(dim: int, generator: torch.Generator) -> None:
    mu_p, mu_q = unit_vectors(2, dim, generator=generator)
    for kappa_p, kappa_q in ((0.5, 4.0), (30.0, 4.0), (200.0, 200.0), (5.0, 0.0)):
        p, q = VonMisesFisher(mu_p, kappa_p), VonMisesFisher(mu_q, kappa_q)
        # The log density ratio is linear in z, so only E_p[mu_p.z] is needed: by quadrature, not by A_D.
        law = CosineLaw(kappa_p, dim)
        mean_cosine = law.mean_cosine
        z = mu_p  # any point: log p - log q at z, moved to the mean
        constant = p.log_prob(z) - q.log_prob(z)
        expected = constant + (kappa_p - kappa_q * (mu_p @ mu_q)) * (mean_cosine - 1)
        assert kl_divergence(p, q).item() == pytest.approx(expected.item(), rel=1e-6, abs=1e-9)
        assert kl_divergence(p, p).item() == pytest.approx(0, abs=1e-12)
        uniform = SphereUniform(dim, dtype=torch.float64)
        flat = VonMisesFisher(mu_q, 0.0)
        assert kl_divergence(p, uniform).item() == pytest.approx(kl_divergence(p, flat).item(), rel=1e-10)
        assert kl_divergence(uniform, p).item() == pytest.approx(kl_divergence(flat, p).item(), rel=1e-10)
    with pytest.raises(ValueError, match="same dimension, but got"):
        kl_divergence(p, SphereUniform(dim + 1))


@pytest.mark.parametrize("dim", [2, 3, 10, 64])
def test_expected_likelihood_against_importance_free_sampling(dim: int, generator: torch.Generator) -> None:
    """E_{z ~ p}[q(z)] by samples of p, which see it if it is off by 2%, and its limits."""
    mu_p, mu_q = unit_vectors(2, dim, generator=generator)
    mu_q = torch.nn.functional.normalize(mu_p + 0.3 * mu_q, dim=0)
    p, q = VonMisesFisher(mu_p, 15.0), VonMisesFisher(mu_q, 8.0)
    likelihoods = q.log_prob(p.sample((100_000,), generator=generator)).exp()
    error = likelihoods.std().item() / math.sqrt(100_000)
    assert error < 0.005 * likelihoods.mean()
    assert abs(likelihoods.mean().item() - p.expected_likelihood(q).item()) < 4 * error
    assert p.expected_likelihood(q).item() == pytest.approx(q.expected_likelihood(p).item(), rel=1e-12)
    flat = VonMisesFisher(mu_q, 0.0)
    assert p.log_expected_likelihood(flat).item() == pytest.approx(flat.log_prob(mu_p).item(), rel=1e-12)


def test_expected_likelihood_keeps_its_digits_at_a_large_kappa() -> None:
    """Two normal distributions of variance 1/kappa in the tangent space, up to an error of order 1/kappa."""
    mu = torch.eye(10, dtype=torch.float64)[0]
    for kappa in (1e12, 1e30):
        narrow = VonMisesFisher(mu, kappa)
        expected = 4.5 * math.log(kappa / (4 * math.pi))
        assert narrow.log_expected_likelihood(narrow).item() == pytest.approx(expected, abs=1e-9)


def test_expected_likelihood_gradients_where_the_resultant_vanishes() -> None:
    mu = torch.eye(5)[0]
    kappa = torch.tensor([4.0, 4.0], requires_grad=True)
    p, q = VonMisesFisher(mu, kappa[0]), VonMisesFisher(-mu, kappa[1])
    p.log_expected_likelihood(q).backward()
    assert torch.isfinite(kappa.grad).all()
    with pytest.raises(ValueError, match="same dimension"):
        p.log_expected_likelihood(VonMisesFisher(torch.eye(4)[0], 1.0))


def test_sphere_uniform(generator: torch.Generator) -> None:
    distribution = SphereUniform(3, batch_shape=(2,), dtype=torch.float64)
    assert distribution.log_prob(unit_vectors(4, 2, 3, generator=generator)).exp().unique().item() == pytest.approx(
        1 / (4 * math.pi)
    )
    assert distribution.entropy().tolist() == pytest.approx([math.log(4 * math.pi)] * 2)
    z = distribution.sample((50_000,), generator=generator)
    assert z.shape == (50_000, 2, 3)
    assert stats.kstest(z[:, 0, 1].numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-3  # Archimedes
    assert distribution.mean.abs().max() == 0
    torch.testing.assert_close(z.var(0), distribution.variance, rtol=0.03, atol=0)
    assert distribution.expand([5, 2]).sample().shape == (5, 2, 3)
    with pytest.raises(RuntimeError, match="expand"):
        distribution.expand([3])
    assert repr(distribution) == "SphereUniform(dim=3, batch_shape=(2,))"
    assert kl_divergence(distribution, SphereUniform(3)).tolist() == [0, 0]
