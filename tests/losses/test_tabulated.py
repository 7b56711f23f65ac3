"""Similarities to negatives of a whole batch by a table, against the closed form in float64."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.losses import PositiveWeight, tabulated
from pcl.losses.mc_info_nce import MCInfoNCE, PartnerSamples, log_mean_similarity
from pcl.mathematics.normalizer_table import growth_table
from pcl.tasks import Negatives
from pcl.training.run import Run
from tests.support.oracles import unit_vectors
from tests.support.smoke import smoke

RANGES = [(0.0, 1.0, 20.0), (16.0, 32.0, 20.0), (1.0, 900.0, 20.0), (900.0, 990.0, 300.0), (1200.0, 1900.0, 980.0)]


def leaves_of(dim: int, lowest: float, highest: float, kappa_pos: float, n_samples: int = 61) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    mu = unit_vectors(37, dim, generator=generator, dtype=torch.float32)
    far = unit_vectors(n_samples, dim, generator=generator, dtype=torch.float32)
    z = normalize(mu[torch.arange(n_samples) % 37] + 0.7 * far, dim=-1)  # near negatives, so that they count
    kappa = lowest + (highest - lowest) * torch.rand(37, generator=generator)
    return [leaf.requires_grad_() for leaf in (z, mu, kappa, torch.tensor(kappa_pos))]


def exact(z: Tensor, mu: Tensor, kappa: Tensor, kappa_pos: Tensor) -> Tensor:
    similarity = log_mean_similarity(VonMisesFisher(mu, kappa, validate_args=False), z @ mu.T, kappa_pos)
    return torch.logsumexp(similarity, -1) - math.log(len(mu))


@pytest.mark.parametrize(("lowest", "highest", "kappa_pos"), RANGES)
@pytest.mark.parametrize("dim", [2, 3, 10, 128])
def test_it_is_the_closed_form(dim: int, lowest: float, highest: float, kappa_pos: float) -> None:
    found = leaves_of(dim, lowest, highest, kappa_pos)
    expected = [leaf.detach().double().requires_grad_() for leaf in found]
    upstream = torch.linspace(-1, 1, len(found[0]))
    ours, reference = tabulated.log_mean_over_negatives(*found), exact(*expected)
    (ours * upstream).sum().backward()  # type: ignore[no-untyped-call]
    (reference * upstream).sum().backward()  # type: ignore[no-untyped-call]
    assert (ours - reference).abs().max() < 1e-3
    for name, leaf, other in zip(("z", "mu", "kappa", "kappa_pos"), found, expected, strict=True):
        assert leaf.grad is not None
        assert other.grad is not None
        assert (leaf.grad - other.grad).abs().max() <= 2e-3 * other.grad.abs().max() + 1e-5, name


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_the_slope_over_kappa_has_its_limit(dim: int) -> None:
    """A(kappa) / kappa is 1 / D at 0: a resultant of opposite vectors is there, and divides."""
    kappa = torch.tensor([1e-4, 1e-3, 1e-2])
    slope = growth_table(dim, kappa.device).lookup_curved(kappa.clone())[1]
    torch.testing.assert_close(slope / kappa, torch.full((3,), 1 / dim), rtol=5e-3, atol=0)


def test_parts_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither blocks in the cache nor a backward pass that computes parts again."""
    found = []
    for block, held in ((2**16, 2**24), (100, 2**24), (100, 500)):
        monkeypatch.setattr(tabulated, "_BLOCK", block)
        monkeypatch.setattr(tabulated, "_HELD", held)
        leaves = leaves_of(10, 16.0, 32.0, 20.0)
        out = tabulated.log_mean_over_negatives(*leaves)
        found.append([out.detach(), *torch.autograd.grad(out.square().sum(), leaves)])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-4, atol=1e-4)


CONCENTRATED = [20.0, 30.0, 999.0, 1100.0, 5e3, 1e5, 1.5e6, 1e8, 1e16, 1e30, torch.inf]


@pytest.mark.parametrize("kappas", [CONCENTRATED, CONCENTRATED[3:]])
def test_points_have_their_limit(kappas: list[float]) -> None:
    """Similarities to concentrated posteriors, beside others and alone, as positives and as negatives."""
    generator = torch.Generator().manual_seed(0)
    z = unit_vectors(len(kappas), 10, generator=generator, dtype=torch.float32)
    near = normalize(z + 0.3 * unit_vectors(len(kappas), 10, generator=generator, dtype=torch.float32), dim=-1)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [leaf.to(dtype).requires_grad_() for leaf in (z.clone(), near.clone(), torch.tensor(kappas))]
        z_, mu, kappa = leaves
        partner = VonMisesFisher(mu, kappa, validate_args=False)
        is_ours = dtype is torch.float32
        similarity = tabulated.log_similarity if is_ours else log_mean_similarity
        of_all = (
            tabulated.log_mean_over_negatives(z_, mu, kappa, 20.0) if is_ours else exact(*leaves, torch.tensor(20.0))
        )
        values = torch.cat([similarity(partner, (z_ * mu).sum(-1), 20.0), of_all])
        results.append([values.detach(), *torch.autograd.grad(values.sum(), leaves)])
    for ours, reference in zip(*results, strict=True):
        assert (ours - reference).abs().max() < 1e-3 * reference.abs().max()
    torch.testing.assert_close(results[0][3].double(), results[1][3], rtol=0.02, atol=1e-38)  # gradients in kappa


def test_weights_of_concentrated_anchors() -> None:
    generator = torch.Generator().manual_seed(0)
    mu = unit_vectors(4, 10, generator=generator, dtype=torch.float32)
    kappa = torch.tensor([25.0, 2e3, 1e5, 1e7])
    law, other = (VonMisesFisher(mu, k, validate_args=False) for k in (kappa, 1.01 * kappa))
    z = other.sample((5,), generator)
    expected = VonMisesFisher(mu.double(), kappa.double()).log_prob(z.double())
    expected -= VonMisesFisher(mu.double(), 1.01 * kappa.double()).log_prob(z.double())
    expected[:, 3] = 0  # nearly a point
    torch.testing.assert_close(tabulated.log_ratio(law, other, z, 20.0).double(), expected, rtol=1e-3, atol=1e-4)


def test_own_negatives_and_float64_are_left_to_the_closed_form() -> None:
    def negatives(n: int, dtype: torch.dtype) -> VonMisesFisher:
        mu = unit_vectors(n, 4, 10, generator=torch.Generator().manual_seed(0), dtype=dtype)
        return VonMisesFisher(mu, torch.full((n, 4), 25.0, dtype=dtype))

    assert tabulated.is_tabulated(negatives(1, torch.float32))
    assert not tabulated.is_tabulated(negatives(3, torch.float32))
    assert not tabulated.is_tabulated(negatives(1, torch.float64))


def test_a_derived_loss_keeps_its_own_form() -> None:
    class Halved(MCInfoNCE):
        def _integrated(self, *args: Any) -> Tensor:
            return super()._integrated(*args) / 2

    config = MCInfoNCE.Config(n_samples=4, positive_weight=PositiveWeight.ZERO, partners=PartnerSamples.INTEGRATED)
    generator = torch.Generator().manual_seed(0)
    mu = unit_vectors(3, 10, generator=generator, dtype=torch.float32)
    posterior = VonMisesFisher(mu, torch.full((3,), 25.0))
    negatives = VonMisesFisher(mu.unsqueeze(0), torch.full((1, 3), 25.0))
    found = []
    for kind in (MCInfoNCE, Halved):
        loss = kind(config)
        loss.has_tables = True
        found.append(loss(posterior, posterior, negatives, generator=torch.Generator().manual_seed(1)))
    torch.testing.assert_close(found[1], found[0] / 2, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("trained", "source"), [(Trained.JOINT, Negatives.POOL), (Trained.KAPPA, Negatives.SHARED)])
@pytest.mark.parametrize("is_learned", [False, True])
def test_fast_training_has_the_plain_losses(trained: Trained, source: Negatives, is_learned: bool) -> None:
    """From the same random numbers, for two runs: their losses and the gradient of every parameter."""
    config = smoke("exact", training__n_negatives=16, loss__learn_kappa_pos=is_learned)
    found = []
    for is_fast in (True, False):
        step = Run(config, (4, 5), is_fast=is_fast).step
        parameters = step.enter(trained, source)
        losses = step.mean_losses(step.prepare())
        found.append([losses.detach(), *torch.autograd.grad(losses.sum(), parameters)])
        assert step._loss_of(1).has_tables is is_fast
    assert len(found[0]) == len(found[1]) > 5
    for fast, plain in zip(*found, strict=True):
        assert (fast - plain).abs().max() <= 1e-3 * plain.abs().max() + 1e-5
    assert any((fast != plain).any() for fast, plain in zip(*found, strict=True))
