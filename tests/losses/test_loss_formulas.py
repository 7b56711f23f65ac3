"""Every loss against loops written from the formulas, its limits, and the two-scalar form of its samples."""

import math

import pytest
import torch
from scipy import stats
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.losses import (
    ELK,
    HIB,
    ElkNegatives,
    Expectation,
    InfoNCE,
    MCInfoNCE,
    NegativeWeight,
    PositiveWeight,
    hib,
    in_batch_negatives,
    info_nce,
    mc_info_nce,
)
from pcl.mathematics.special import log_vmf_normalizer
from tests.support.oracles import unit_vectors
from tests.support.posteriors import SAMPLING, B, D, N, S, drawn_cosines, posteriors, small_config, triple


@pytest.mark.parametrize("weight", PositiveWeight)
def test_mc_info_nce_equals_the_double_loop(weight: PositiveWeight, generator: torch.Generator) -> None:
    z, z_pos, z_neg, cos_pos, cos_neg = drawn_cosines(generator)
    kappa_pos = 20.0
    share = {PositiveWeight.ONE_OVER_N: 1 / N, PositiveWeight.ONE: 1.0, PositiveWeight.ZERO: 0.0}[weight]
    result = mc_info_nce(kappa_pos * cos_pos, kappa_pos * cos_neg, weight.of(N))
    for b in range(B):
        total = 0.0
        for k in range(S):
            positive = math.exp(kappa_pos * float(z[k, b] @ z_pos[k, b]))
            denominator = share * positive
            for m in range(N):
                denominator += math.exp(kappa_pos * float(z[k, b] @ z_neg[k, b, m])) / N
            total += positive / denominator
        assert result[b].item() == pytest.approx(-math.log(total / S), abs=1e-6)


@pytest.mark.parametrize("expectation", Expectation)
@pytest.mark.parametrize("weight", NegativeWeight)
def test_hib_equals_the_double_loop(
    expectation: Expectation, weight: NegativeWeight, generator: torch.Generator
) -> None:
    z, z_pos, z_neg, cos_pos, cos_neg = drawn_cosines(generator)
    a, offset = 2.0, -0.5
    result = hib(cos_pos, cos_neg, a, offset, expectation, weight.of(N))

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    def mean_log(values: list[float]) -> float:
        if expectation is Expectation.LOG_OF_MEAN:
            return math.log(sum(values) / S)
        return sum(math.log(value) for value in values) / S

    for b in range(B):
        loss = -mean_log([sigmoid(a * float(z[k, b] @ z_pos[k, b]) + offset) for k in range(S)])
        share = 1 / N if weight is NegativeWeight.ONE_OVER_N else 1 / N / N
        for m in range(N):
            loss -= share * mean_log([1 - sigmoid(a * float(z[k, b] @ z_neg[k, b, m]) + offset) for k in range(S)])
        assert result[b].item() == pytest.approx(loss, abs=1e-6)


@pytest.mark.parametrize("weight", PositiveWeight)
def test_elk_equals_the_loop(weight: PositiveWeight) -> None:
    anchor, positive, negatives = posteriors(*triple(kappa=7.0))
    config = ELK.Config(kappa_pos=16.3, positive_weight=weight)  # no float32 number
    result = config.build()(anchor, positive, negatives)

    def similarity(mu1: Tensor, k1: Tensor, mu2: Tensor, k2: Tensor) -> float:
        resultant = (k1 * mu1 + k2 * mu2).norm()
        log_kernel = log_vmf_normalizer(k1, D) + log_vmf_normalizer(k2, D) - log_vmf_normalizer(resultant, D)
        return 16.3 * log_kernel.item()

    for b in range(B):
        own = anchor.mu[b], anchor.kappa[b]
        attracting = math.exp(similarity(*own, positive.mu[b], positive.kappa[b]))
        repelling = [math.exp(similarity(*own, negatives.mu[b, m], negatives.kappa[b, m])) for m in range(N)]
        loss = -math.log(attracting / (weight.of(N) * attracting + sum(repelling) / N))
        assert result[b].item() == pytest.approx(loss, abs=1e-6)


def test_elk_with_rolled_positives_has_nothing_that_repels() -> None:
    """The released code without negatives: any embedding whose pairs agree equally well reaches log 2."""
    anchor, positive, negatives = posteriors(*triple())
    config = ELK.Config(negatives=ElkNegatives.ROLLED_POSITIVES, positive_weight=PositiveWeight.ONE)
    result = config.build()(anchor, positive, negatives)
    own = [20 * anchor.log_expected_likelihood(positive)[b].item() for b in range(B)]
    expected = [-own[b] + max(own[b], other := own[(b + 1) % B]) + math.log1p(math.exp(-abs(own[b] - other)))
                for b in range(B)]  # fmt: skip
    torch.testing.assert_close(result, torch.tensor(expected, dtype=torch.float64))
    collapsed = VonMisesFisher(torch.eye(D)[:1].expand(B, D), 20.0)
    loss = config.build()(collapsed, collapsed, in_batch_negatives(collapsed))
    torch.testing.assert_close(loss, torch.full((B,), math.log(2)))


def test_info_nce_equals_the_loop() -> None:
    anchor, positive, negatives = posteriors(*triple())
    result = InfoNCE.Config(kappa_pos=16.3).build()(anchor, positive, negatives)
    for b in range(B):
        attracting = math.exp(16.3 * (anchor.mu[b] @ positive.mu[b]).item())
        repelling = sum(math.exp(16.3 * (anchor.mu[b] @ negatives.mu[b, m]).item()) for m in range(N))
        assert result[b].item() == pytest.approx(-math.log(attracting / (attracting / N + repelling / N)), abs=1e-6)


@pytest.mark.parametrize("weight", PositiveWeight)
def test_infinite_concentration_turns_mc_info_nce_into_info_nce(weight: PositiveWeight) -> None:
    anchor, positive, negatives = triple()
    sharp = [VonMisesFisher(d.mu, torch.inf) for d in posteriors(anchor, positive, negatives)]
    sampled = MCInfoNCE.Config(n_samples=4, positive_weight=weight).build()(*sharp)
    exact = InfoNCE.Config(positive_weight=weight).build()(*sharp)
    torch.testing.assert_close(sampled, exact, rtol=1e-9, atol=1e-9)
    leaves = [leaf.direction for leaf in (anchor, positive, negatives)]
    for a, b in zip(
        torch.autograd.grad(sampled.sum(), leaves, retain_graph=True),
        torch.autograd.grad(exact.sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


def test_infinite_concentration_gives_hib_at_the_modes() -> None:
    sharp = [VonMisesFisher(d.mu, torch.inf) for d in posteriors(*triple())]
    anchor, positive, negatives = sharp
    cos_pos, cos_neg = (anchor.mu * positive.mu).sum(-1), (anchor.mu.unsqueeze(1) * negatives.mu).sum(-1)
    expected = hib(cos_pos[None], cos_neg[None], 1.0, 0.0, Expectation.LOG_OF_MEAN, 1 / N)
    torch.testing.assert_close(HIB.Config(n_samples=3).build()(*sharp), expected)


@pytest.mark.parametrize("dim", [2, 3, 10])
def test_two_scalars_have_the_law_of_whole_samples(dim: int, generator: torch.Generator) -> None:
    """z.z' by cosine and one tangent coordinate against z.z' with z' drawn in full: two-sample KS, and the mean."""
    n = 100_000
    z, mu = unit_vectors(2, dim, generator=generator)
    posterior = VonMisesFisher(mu, 6.0)
    noise = torch.randn(2, n, dtype=torch.float64, generator=generator)
    scalar = posterior.rsample_cosine((z @ mu).expand(n), noise)
    whole = posterior.sample((n,), generator=generator) @ z
    assert stats.ks_2samp(scalar.numpy(), whole.numpy()).pvalue > 1e-3
    error = scalar.std().item() / math.sqrt(n)
    assert abs(scalar.mean().item() - (posterior.mean @ z).item()) < 4 * error


@pytest.mark.parametrize("dim", [3, 10])
def test_two_scalars_have_the_gradients_of_whole_samples(dim: int, generator: torch.Generator) -> None:
    """d/d(mu, kappa) of E[(z.z')^2], both ways, within 4 standard errors: a nonlinear statistic."""
    n = 300_000
    z, mu = unit_vectors(2, dim, generator=generator)

    def gradients(two_scalars: bool) -> tuple[Tensor, Tensor]:
        direction, kappa = mu.repeat(n, 1).requires_grad_(), torch.full((n,), 6.0).double().requires_grad_()
        posterior = VonMisesFisher(torch.nn.functional.normalize(direction, dim=-1), kappa, validate_args=False)
        if two_scalars:
            noise = torch.randn(2, 1, n, dtype=torch.float64, generator=generator)
            cosine = posterior.rsample_cosine((posterior.mu @ z).unsqueeze(0), noise)
        else:
            cosine = posterior.rsample(generator=generator) @ z
        cosine.square().sum().backward()
        every = torch.cat([direction.grad, kappa.grad.unsqueeze(-1)], dim=-1)
        return every.mean(0), every.std(0) / math.sqrt(n)

    (scalar, scalar_error), (whole, whole_error) = gradients(True), gradients(False)
    assert ((scalar - whole).abs() < 4 * (scalar_error**2 + whole_error**2).sqrt() + 1e-12).all()


@pytest.mark.parametrize("are_common", [False, True])
@pytest.mark.parametrize("name", SAMPLING)
def test_chunks_change_neither_value_nor_gradient(name: str, are_common: bool) -> None:
    results = []
    for chunk_size in (2**20, B * N * 5, 1):  # one chunk; chunks of 5, 5, 5 and 1; one sample a chunk
        leaves = triple()
        loss = small_config(name).build()
        loss.chunk_size = chunk_size
        anchor, positive, negatives = posteriors(*leaves)
        if are_common:
            negatives = VonMisesFisher(negatives.mu[:1], negatives.kappa[:1])
        value = loss(anchor, positive, negatives, generator=torch.Generator().manual_seed(5))
        value.sum().backward()
        results.append((value.detach(), [t.grad for leaf in leaves for t in (leaf.direction, leaf.log_kappa)]))
    for value, gradients in results[1:]:
        torch.testing.assert_close(value, results[0][0], rtol=0, atol=1e-6)
        for gradient, reference in zip(gradients, results[0][1], strict=True):
            torch.testing.assert_close(gradient, reference, rtol=0, atol=1e-6)


def test_pure_functions_are_invariant_to_the_order_of_negatives_and_samples(generator: torch.Generator) -> None:
    *_, cos_pos, cos_neg = drawn_cosines(generator)
    functions = {
        "mc_info_nce": lambda p, n: mc_info_nce(20 * p, 20 * n, 1.0),
        "hib": lambda p, n: hib(p, n, 2.0, 1.0, Expectation.LOG_OF_MEAN, 1 / N),
        "info_nce": lambda p, n: info_nce(p[0], n[0], 1.0),
    }
    for function in functions.values():
        torch.testing.assert_close(function(cos_pos, cos_neg.flip(-1)), function(cos_pos, cos_neg))
    for name in SAMPLING:
        order = torch.randperm(S, generator=generator)
        torch.testing.assert_close(functions[name](cos_pos[order], cos_neg[order]), functions[name](cos_pos, cos_neg))
