"""Integrated similarities up to kappa = inf: against mpmath, and the loss against its limit."""

import math
from functools import cache

import mpmath
import pytest
import torch
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.losses import AnchorSamples, InfoNCE, MCInfoNCE, PartnerSamples, PositiveWeight
from pcl.losses.mc_info_nce import log_mean_similarity
from pcl.mathematics.point_limit import NEARLY_A_POINT
from pcl.tasks import ToyTask
from pcl.tasks.rules import IntegratedAcceptance
from pcl.tasks.toy import PositiveRule
from tests.support.oracles import unit_vectors

COSINES = (-1.0, -0.4, 0.0, 0.7, 1.0)
KAPPAS = (0.01, 5.0, 300.0, 1e5, 0.999 * NEARLY_A_POINT, 1.001 * NEARLY_A_POINT, 1e8, 1e16, 1e30)


@cache  # of all cosines, and of both kappa_pos
def bessel(order: mpmath.mpf, x: mpmath.mpf) -> mpmath.mpf:
    """e^-x I_order(x), by Hankel's expansion where x is large."""
    if x < 1e5:
        return mpmath.besseli(order, x) * mpmath.exp(-x)
    term = total = mpmath.mpf(1)
    for k in range(1, 30):
        term *= -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
        total += term
    return total / mpmath.sqrt(2 * mpmath.pi * x)


def exact(kappa: float, cosine: float, kappa_pos: float, dim: int) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """The log mean similarity, and its derivatives in kappa and the cosine."""
    k, c, scale, v = mpmath.mpf(kappa), mpmath.mpf(cosine), mpmath.mpf(kappa_pos), mpmath.mpf(dim) / 2 - 1
    resultant = mpmath.sqrt(k**2 + scale**2 + 2 * k * scale * c)
    log_c = [v * mpmath.log(x) - mpmath.log(bessel(v, x)) - x for x in (k, resultant)]
    ratio = [bessel(v + 1, x) / bessel(v, x) for x in (k, resultant)]
    slope = ratio[1] / resultant
    return log_c[0] - log_c[1], slope * (k + scale * c) - ratio[0], slope * k * scale


def similarity(kappa: float, kappa_pos: float, dim: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Of all cosines, with the derivatives in kappa and the cosine."""
    k = torch.full((len(COSINES),), kappa, dtype=dtype, requires_grad=True)
    c = torch.tensor(COSINES, dtype=dtype, requires_grad=True)
    mode = torch.eye(dim, dtype=dtype)[0].expand(len(COSINES), dim)
    value = log_mean_similarity(VonMisesFisher(mode, k), c, kappa_pos)
    return value.detach(), *torch.autograd.grad(value.sum(), (k, c))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kappa_pos", [0.5, 20.0])
@pytest.mark.parametrize("dim", [2, 3, 10, 33, 128])
def test_similarity_and_its_gradients_against_mpmath(dim: int, kappa_pos: float, dtype: torch.dtype) -> None:
    mpmath.mp.dps = 80
    eps = torch.finfo(dtype).eps
    for kappa in torch.tensor(KAPPAS, dtype=dtype).tolist():
        found = similarity(kappa, kappa_pos, dim, dtype)
        # The closed form's two terms are of the size of kappa, in float64 whatever goes in.
        rounding = 4 * eps + (1e-13 + 1e-15 * kappa if kappa <= NEARLY_A_POINT else 1e-11)
        for i, cosine in enumerate(torch.tensor(COSINES, dtype=dtype).tolist()):
            value, in_kappa, in_cosine = exact(kappa, cosine, kappa_pos, dim)
            assert abs(found[0][i].item() - value) <= rounding * max(1.0, kappa_pos)
            # The derivative in kappa is a difference of ratios near 1; beyond, it has digits of its own.
            is_point = kappa > NEARLY_A_POINT
            assert abs(found[1][i].item() - in_kappa) <= (1e-5 * abs(in_kappa) + 1e-40 if is_point else 4 * eps + 1e-12)
            assert abs(found[2][i].item() - in_cosine) <= (4 * eps + 1e-9) * max(1.0, kappa_pos)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_similarity_to_a_point_is_that_of_its_mode(dtype: torch.dtype) -> None:
    value, in_kappa, in_cosine = similarity(math.inf, 20.0, 7, dtype)
    torch.testing.assert_close(value, 20 * torch.tensor(COSINES, dtype=dtype))
    assert (in_kappa == 0).all()
    torch.testing.assert_close(in_cosine, torch.full_like(in_cosine, 20.0))


@pytest.mark.parametrize("kappa", [3.0, 40.0])
def test_similarity_has_the_gradients_of_finite_differences(kappa: float) -> None:
    mode = torch.eye(6, dtype=torch.float64)[0]
    inputs = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in (kappa, 0.3, 20.0)]
    assert torch.autograd.gradcheck(lambda k, c, scale: log_mean_similarity(VonMisesFisher(mode, k), c, scale), inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("anchors", AnchorSamples)
@pytest.mark.parametrize("kappa", [1e16, 1e30, math.inf])
def test_integrated_loss_of_points_is_info_nce(kappa: float, anchors: AnchorSamples, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = ((4,), (4,), (4, 8))
    modes = [unit_vectors(*shape, 10, generator=generator, dtype=dtype).requires_grad_() for shape in shapes]
    kappas = [torch.full(shape, kappa, dtype=dtype, requires_grad=True) for shape in shapes]
    loss = MCInfoNCE.Config(
        n_samples=4, positive_weight=PositiveWeight.ZERO, partners=PartnerSamples.INTEGRATED, anchors=anchors
    ).build()
    posteriors = [VonMisesFisher(mode, k, validate_args=False) for mode, k in zip(modes, kappas, strict=True)]
    value = loss(*posteriors, generator=generator)
    limit = InfoNCE.Config(positive_weight=PositiveWeight.ZERO).build()(*posteriors)
    torch.testing.assert_close(value, limit, rtol=1e-5, atol=1e-5)
    value.sum().backward()  # type: ignore[no-untyped-call]
    for mode, gradient in zip(modes, torch.autograd.grad(limit.sum(), modes), strict=True):
        assert mode.grad is not None
        ours, theirs = (g - (g * mode).sum(-1, keepdim=True) * mode for g in (mode.grad, gradient))  # along the sphere
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)
    for k in kappas:
        assert k.grad is not None
        assert (k.grad.abs() < 1e-6).all()


@pytest.mark.parametrize("anchors", AnchorSamples)
@pytest.mark.parametrize(("anchor_kappa", "partner_kappa"), [(20.0, math.inf), (math.inf, 20.0), (1e30, 20.0)])
def test_integrated_loss_of_points_and_others(
    anchor_kappa: float, partner_kappa: float, anchors: AnchorSamples
) -> None:  # fmt: skip
    """Finite with its gradients, and the one that drawing very many gives."""
    generator = torch.Generator().manual_seed(0)
    mode = unit_vectors(1, 6, generator=generator)
    near = torch.nn.functional.normalize(mode + 0.3 * unit_vectors(1, 6, generator=generator), dim=-1)
    kappas = [torch.tensor([k], dtype=torch.float64, requires_grad=True) for k in (anchor_kappa, partner_kappa)]
    negatives = VonMisesFisher(unit_vectors(1, 16, 6, generator=generator), 20.0)
    of_loss = {"positive_weight": PositiveWeight.ZERO, "kappa_pos": 8.0}
    integrated = MCInfoNCE.Config(n_samples=1024, partners=PartnerSamples.INTEGRATED, anchors=anchors, **of_loss)
    posteriors = VonMisesFisher(mode, kappas[0]), VonMisesFisher(near, kappas[1])
    value = integrated.build()(*posteriors, negatives, generator=generator)
    repeated = VonMisesFisher(negatives.mu.repeat(1, 16, 1), negatives.kappa.repeat(1, 16))
    drawn = MCInfoNCE.Config(n_samples=4096, **of_loss).build()(*posteriors, repeated, generator=generator)
    torch.testing.assert_close(value, drawn, atol=0.2, rtol=0)
    assert all(torch.isfinite(g).all() for g in torch.autograd.grad(value.sum(), kappas))


@pytest.mark.parametrize("dim", [2, 10, 64])
@pytest.mark.parametrize("kappa_max", [900.0, 1100.0, 2e4, 1e6])
def test_acceptance_beyond_the_table_is_the_exact_one(kappa_max: float, dim: int) -> None:
    cosine = torch.linspace(-1, 1, 41).expand(1, 1, -1)
    kappa = torch.full_like(cosine, kappa_max)
    found = IntegratedAcceptance(dim, kappa_max, 20.0)(cosine, kappa)
    partner = VonMisesFisher(torch.eye(dim, dtype=torch.float64)[0], kappa_max)
    expected = log_mean_similarity(partner, cosine.double(), 20.0).exp()
    torch.testing.assert_close(found.double() / found.max(), expected / expected.max(), rtol=5e-3, atol=1e-12)
    assert found.max() > 0.9
    assert found.max() <= 1


def test_positives_of_points_are_accepted_by_their_modes() -> None:
    task = ToyTask.Config(positives=PositiveRule.VMF, kappa_min=1e7, kappa_max=1e9, n_eval=10).build([4])
    generator = torch.Generator().manual_seed(0)
    mu, kappa = task.truth.parameters_of(torch.rand(1, 50, 10, generator=generator))
    cosine = mu @ mu.mT
    expected = torch.exp(task.config.kappa_pos * (cosine - 1))
    torch.testing.assert_close(task.pairs.integrated_acceptance(cosine, kappa[:, None]), expected, rtol=1e-3, atol=1e-5)
