"""Every loss against loops written from the formulas, then the contract that all of them keep.

Axes: S samples, B anchors, N negatives, D dim.
"""

import copy
import math
import os
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from scipy import stats
from torch import Tensor

from pcl.distributions import ProjectedNormal, VonMisesFisher
from pcl.losses import (
    ELK,
    HIB,
    LOSSES,
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
from pcl.special import log_vmf_normalizer
from tests.oracles import unit_vectors

S, B, N, D = 6, 4, 3, 5
SAMPLING = ("mc_info_nce", "hib")


def small_config(name: str):
    return replace(LOSSES[name].Config(), n_samples=16) if name in SAMPLING else LOSSES[name].Config()


class Leaves:
    """Posteriors from unconstrained leaves, so that gradients are those an encoder would see."""

    def __init__(self, *batch: int, kappa: float, seed: int, dtype: torch.dtype = torch.float64, dim: int = D) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.direction = torch.randn(*batch, dim, generator=generator, dtype=dtype).requires_grad_()
        self.log_kappa = torch.full(batch, math.log(kappa), dtype=dtype).requires_grad_()

    def posterior(self) -> VonMisesFisher:
        return VonMisesFisher(torch.nn.functional.normalize(self.direction, dim=-1), self.log_kappa.exp())


def triple(kappa: float = 20.0, dtype: torch.dtype = torch.float64, dim: int = D) -> tuple[Leaves, Leaves, Leaves]:
    return (
        Leaves(B, kappa=kappa, seed=1, dtype=dtype, dim=dim),
        Leaves(B, kappa=kappa, seed=2, dtype=dtype, dim=dim),
        Leaves(B, N, kappa=kappa, seed=3, dtype=dtype, dim=dim),
    )


def posteriors(*leaves: Leaves) -> list[VonMisesFisher]:
    return [leaf.posterior() for leaf in leaves]


def drawn_cosines(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Samples z (S, B, D), z+ (S, B, D), z- (S, B, N, D) and the cosines the pure functions take."""
    z, z_pos = (unit_vectors(S, B, D, generator=generator) for _ in range(2))
    z_neg = unit_vectors(S, B, N, D, generator=generator)
    return z, z_pos, z_neg, (z * z_pos).sum(-1), (z.unsqueeze(2) * z_neg).sum(-1)


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


@pytest.mark.parametrize("name", SAMPLING)
def test_chunks_change_neither_value_nor_gradient(name: str) -> None:
    results = []
    for chunk_size in (2**20, B * N * 5, 1):  # one chunk; chunks of 5, 5, 5 and 1; one sample a chunk
        leaves = triple()
        loss = LOSSES[name](small_config(name), chunk_size=chunk_size)
        value = loss(*posteriors(*leaves), generator=torch.Generator().manual_seed(5))
        value.sum().backward()
        results.append((value.detach(), [t.grad for leaf in leaves for t in (leaf.direction, leaf.log_kappa)]))
    for value, gradients in results[1:]:
        torch.testing.assert_close(value, results[0][0], rtol=0, atol=1e-6)
        for gradient, reference in zip(gradients, results[0][1], strict=True):
            torch.testing.assert_close(gradient, reference, rtol=0, atol=1e-6)


def rotated(posterior: VonMisesFisher, rotation: Tensor) -> VonMisesFisher:
    return VonMisesFisher(posterior.mu @ rotation, posterior.kappa)


def permuted(negatives: VonMisesFisher) -> VonMisesFisher:
    return VonMisesFisher(negatives.mu.flip(1), negatives.kappa.flip(1))


@pytest.mark.parametrize("name", LOSSES)
def test_rotations_and_permutations_change_nothing(name: str, generator: torch.Generator) -> None:
    anchor, positive, negatives = posteriors(*triple())
    negatives = VonMisesFisher(negatives.mu, negatives.kappa * torch.tensor([0.5, 1.0, 2.0]))
    rotation, _ = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64, generator=generator))
    turned = [rotated(d, rotation) for d in (anchor, positive, negatives)]
    variants = [(anchor, positive, negatives), tuple(turned), (anchor, positive, permuted(negatives))]
    if name not in SAMPLING:
        loss = LOSSES[name].Config().build()
        for variant in variants[1:]:
            torch.testing.assert_close(loss(*variant), loss(*variants[0]), rtol=1e-9, atol=1e-9)
        return
    # A sampling loss is invariant in law: 400 losses of 64 samples each, compared in the mean.
    loss = replace(LOSSES[name].Config(), n_samples=64).build()
    means, errors = [], []
    for variant in variants:
        repeated = [
            VonMisesFisher(d.mu[:1].expand(400, *d.mu.shape[1:]), d.kappa[:1].expand(400, *d.kappa.shape[1:]))
            for d in variant
        ]
        values = loss(*repeated, generator=generator).detach()
        means.append(values.mean().item())
        errors.append(values.std().item() / 20)
    for mean, error in zip(means[1:], errors[1:], strict=True):
        assert abs(mean - means[0]) < 4 * math.hypot(error, errors[0])


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


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("kappa", [1e-3, 1.0, 100.0, 1e7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("dim", [2, 10])
def test_finite_loss_and_gradients(name: str, kappa: float, dtype: torch.dtype, dim: int) -> None:
    loss = small_config(name).build()
    for leaves in (triple(kappa, dtype, dim), coinciding(kappa, dtype, dim)):
        value = loss(*posteriors(*leaves), generator=torch.Generator().manual_seed(0))
        assert value.shape == (B,)
        assert value.dtype == dtype
        assert torch.isfinite(value).all()
        value.sum().backward()
        for leaf in leaves:
            assert torch.isfinite(leaf.direction.grad).all()
            assert leaf.log_kappa.grad is None or torch.isfinite(leaf.log_kappa.grad).all()


def coinciding(kappa: float, dtype: torch.dtype, dim: int) -> tuple[Leaves, Leaves, Leaves]:
    """Anchor, positive and negatives with the same mode: every cosine at its end, where square roots have no slope."""
    leaves = triple(kappa, dtype, dim)
    for leaf in leaves[1:]:
        with torch.no_grad():
            leaf.direction.copy_(leaves[0].direction.view(B, *(1,) * (leaf.direction.ndim - 2), dim))
    return leaves


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_reach_what_they_should_and_nothing_else(name: str) -> None:
    leaves = triple()
    loss = small_config(name).build()
    loss(*posteriors(*leaves), generator=torch.Generator().manual_seed(0)).sum().backward()
    for leaf in leaves:
        assert leaf.direction.grad.abs().flatten(1).sum(-1).min() > 0
        if name == "info_nce":
            assert leaf.log_kappa.grad is None
        else:
            assert (leaf.log_kappa.grad != 0).all()
    assert not list(loss.parameters())


@pytest.mark.parametrize("name", LOSSES)
def test_no_gradient_crosses_between_anchors(name: str) -> None:
    leaves = triple()
    loss = small_config(name).build()
    loss(*posteriors(*leaves), generator=torch.Generator().manual_seed(0))[0].backward()
    for leaf in leaves:
        assert leaf.direction.grad[0].abs().sum() > 0
        assert leaf.direction.grad[1:].abs().sum() == 0


@pytest.mark.parametrize("name", LOSSES)
def test_learned_scale(name: str) -> None:
    """A learned kappa_pos (HIB: a) starts at its value, receives a gradient and travels in the state dict."""
    setting = "learn_a" if name == "hib" else "learn_kappa_pos"
    config = replace(small_config(name), **{setting: True})
    learned, fixed = config.build(), small_config(name).build()
    arguments = posteriors(*triple())
    values = [loss(*arguments, generator=torch.Generator().manual_seed(0)) for loss in (learned, fixed)]
    torch.testing.assert_close(*values, rtol=1e-12, atol=1e-12)
    values[0].sum().backward()
    (parameter,) = learned.parameters()
    assert parameter.grad.abs() > 0
    assert not fixed.state_dict()  # the config alone defines a fixed number
    with torch.no_grad():
        parameter += 0.5
    twin = config.build()
    twin.load_state_dict(learned.state_dict())
    torch.testing.assert_close(
        twin(*arguments, generator=torch.Generator().manual_seed(0)),
        learned(*arguments, generator=torch.Generator().manual_seed(0)),
        rtol=0,
        atol=0,
    )


@pytest.mark.parametrize("name", LOSSES)
def test_pickles_copies_and_has_a_frozen_config(name: str) -> None:
    loss = small_config(name).build()
    assert isinstance(loss, LOSSES[name])
    arguments = posteriors(*triple())
    value = loss(*arguments, generator=torch.Generator().manual_seed(0))
    for twin in (pickle.loads(pickle.dumps(loss)), copy.deepcopy(loss), loss.config.build()):
        assert twin.config == loss.config
        assert torch.equal(twin(*arguments, generator=torch.Generator().manual_seed(0)), value)
    with pytest.raises(FrozenInstanceError):
        loss.config.kappa_pos = 3.0


@pytest.mark.parametrize("name", LOSSES)
def test_shared_negatives_equal_repeated_ones(name: str) -> None:
    anchor, positive, negatives = posteriors(*triple())
    loss = small_config(name).build()
    shared = VonMisesFisher(negatives.mu[:1], negatives.kappa[:1])
    repeated = shared.expand([B, N])
    values = [loss(anchor, positive, n, generator=torch.Generator().manual_seed(0)) for n in (shared, repeated)]
    torch.testing.assert_close(*values)


def test_in_batch_negatives_are_the_next_neighbours() -> None:
    batch = VonMisesFisher(torch.eye(4), torch.arange(1.0, 5.0))
    assert in_batch_negatives(batch).kappa.tolist() == [[2], [3], [4], [1]]
    negatives = in_batch_negatives(batch, n_negatives=3)
    assert negatives.kappa.tolist() == [[2, 3, 4], [3, 4, 1], [4, 1, 2], [1, 2, 3]]
    assert torch.equal(negatives.mu[2, 1], torch.eye(4)[0])
    for bad in (0, 4):
        with pytest.raises(
            ValueError, match=rf"`1 <= n_negatives < batch size` must hold, but got {bad} for a batch of 4"
        ):
            in_batch_negatives(batch, n_negatives=bad)


@pytest.mark.parametrize("name", LOSSES)
def test_bad_shapes_are_named(name: str) -> None:
    anchor, positive, negatives = posteriors(*triple())
    loss = small_config(name).build()
    with pytest.raises(ValueError, match=r"one batch shape \(B,\) with B >= 1, but got \(4,\) and \(4, 3\)"):
        loss(anchor, negatives, negatives)
    empty = VonMisesFisher(torch.ones(0, D, dtype=torch.float64), 1.0)
    with pytest.raises(ValueError, match="with B >= 1"):
        loss(empty, empty, negatives)
    for bad in (VonMisesFisher(torch.ones(B, 0, D, dtype=torch.float64), 1.0), VonMisesFisher(anchor.mu[0], 1.0)):
        with pytest.raises(ValueError, match=r"negatives must have batch shape \(4, N\)"):
            loss(anchor, positive, bad)
    with pytest.raises(ValueError, match=r"must have one dtype, but got .*'negatives': 'torch.float32'"):
        loss(anchor, positive, VonMisesFisher(negatives.mu.float(), negatives.kappa.float()))
    with pytest.raises(ValueError, match="`positive` must be a VonMisesFisher, but got a ProjectedNormal"):
        loss(anchor, ProjectedNormal(positive.mu, 1.0), negatives)
    with pytest.raises(ValueError, match=r"must have batch shape \(4, N\) or \(1, N\).*use in_batch_negatives"):
        loss(anchor, positive, positive)
    with pytest.raises(ValueError, match=r"one dimension, but got \[5, 6\]"):
        loss(anchor, positive, Leaves(B, N, kappa=1.0, seed=0, dim=6).posterior())


def test_bad_settings_are_named() -> None:
    for config in (MCInfoNCE.Config, HIB.Config):
        for bad in (0, 2.5, True):
            with pytest.raises(ValueError, match="`n_samples >= 1` must hold for a whole number, but got"):
                config(n_samples=bad)
    for name in ("mc_info_nce", "elk", "info_nce"):
        for bad in (0.0, -1.0, math.inf, math.nan):
            with pytest.raises(ValueError, match="`0 < kappa_pos < inf` must hold, but got"):
                LOSSES[name].Config(kappa_pos=bad)
        with pytest.raises(
            ValueError, match=r"`positive_weight` must be one of PositiveWeight\.ONE_OVER_N.* got 'one'"
        ):
            LOSSES[name].Config(positive_weight="one")
    with pytest.raises(ValueError, match="`0 < a < inf` must hold, but got -1"):
        HIB.Config(a=-1.0)
    with pytest.raises(ValueError, match="`b` must be finite, but got nan"):
        HIB.Config(b=math.nan)
    with pytest.raises(ValueError, match=r"`expectation` must be one of Expectation\.LOG_OF_MEAN"):
        HIB.Config(expectation="log_of_mean")
    with pytest.raises(ValueError, match="`negative_weight` must be one of"):
        HIB.Config(negative_weight=1.0)
    with pytest.raises(ValueError, match=r"`negatives` must be one of ElkNegatives\.GIVEN"):
        ELK.Config(negatives="rolled_positives")
    with pytest.raises(ValueError, match="`chunk_size >= 1` must hold"):
        MCInfoNCE(MCInfoNCE.Config(), chunk_size=0)


@pytest.mark.parametrize("name", SAMPLING)
def test_autocast_changes_nothing(name: str) -> None:
    arguments = posteriors(*triple(dtype=torch.float32))
    loss = small_config(name).build()
    plain = loss(*arguments, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        lowered = loss(*arguments, generator=torch.Generator().manual_seed(0))
    assert torch.equal(lowered, plain)


MEMORY_PROBE = """
import sys, torch
from pcl.distributions import ProjectedNormal, VonMisesFisher
from pcl.losses import MCInfoNCE
torch.set_num_threads(1)
S, B, N, D, chunk = (int(a) for a in sys.argv[1:])
def high_water():  # KiB
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])
def posterior(*batch):
    mu = torch.nn.functional.normalize(torch.randn(*batch, D), dim=-1).requires_grad_()
    return VonMisesFisher(mu, torch.full(batch, 20.0, requires_grad=True), validate_args=False)
def step(S, B, N, chunk):
    loss = MCInfoNCE(MCInfoNCE.Config(n_samples=S), chunk_size=chunk)
    loss(posterior(B), posterior(B), posterior(B, N)).mean().backward()
step(4, 2, 1, 1)  # loads everything that a chunked step needs
before = high_water()
step(S, B, N, chunk)
print((high_water() - before) / 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads the high-water mark from /proc")
def test_peak_memory_of_mc_info_nce() -> None:
    """At a quarter of the full size (S = 128 instead of 512), in chunks of 4 samples.

    16 MiB of random numbers and what a chunk needs. The full size, with a bar of 1 GiB, is measured by
    `python launch/bench.py loss`.
    """

    def peak_mib(chunk_size: int) -> float:
        sizes = map(str, (128, 512, 32, 10, chunk_size))
        # Every tensor gets pages of its own and gives them back: the high-water mark is that of the tensors alive.
        environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
        command = [sys.executable, "-c", MEMORY_PROBE, *sizes]
        process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, env=environment)
        return float(process.stdout)

    chunked, large = peak_mib(2**16), peak_mib(2**30)
    assert chunked < 50  # 38 when written
    assert large < 200  # the default; a quarter of the bar would be 256
    assert large > 1.5 * chunked  # 83 when written: the probe sees memory, and chunks are what saves it


@pytest.mark.gpu
@pytest.mark.parametrize("name", LOSSES)
def test_gpu_agrees_with_cpu_and_is_never_waited_for(name: str) -> None:
    """Sampling losses agree in law: means over 2,000 equal anchors within 4 standard errors."""
    config = replace(LOSSES[name].Config(), n_samples=64) if name in SAMPLING else LOSSES[name].Config()
    loss = config.build()
    anchor, positive, negatives = (
        VonMisesFisher(d.mu[:1].expand(2000, *d.mu.shape[1:]), d.kappa[:1].expand(2000, *d.kappa.shape[1:]))
        for d in posteriors(*triple(dtype=torch.float32))
    )
    on_cpu = loss(anchor, positive, negatives).detach()
    loss = loss.cuda()
    moved = [
        VonMisesFisher(d.mu.detach().cuda().requires_grad_(), d.kappa.detach().cuda().requires_grad_())
        for d in (anchor, positive, negatives)
    ]
    loss(*moved)  # builds the tables
    torch.cuda.set_sync_debug_mode("error")
    try:
        values = loss(*moved)
        values.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    on_gpu = values.detach().cpu()
    error = math.hypot(on_cpu.std().item(), on_gpu.std().item()) / math.sqrt(2000)
    assert abs(on_cpu.mean().item() - on_gpu.mean().item()) < 4 * error + 1e-4 * abs(on_cpu.mean().item())


@pytest.mark.gpu
def test_full_size_stays_under_one_gibibyte_on_the_gpu() -> None:
    posterior_of = {}
    for key, batch in (("anchor", (512,)), ("positive", (512,)), ("negatives", (512, 32))):
        mu = torch.nn.functional.normalize(torch.randn(*batch, 10, device="cuda"), dim=-1)
        kappa = torch.full(batch, 20.0, device="cuda")
        posterior_of[key] = VonMisesFisher(mu.requires_grad_(), kappa.requires_grad_())
    torch.cuda.reset_peak_memory_stats()
    MCInfoNCE.Config(n_samples=512).build().cuda()(**posterior_of).mean().backward()
    assert torch.cuda.max_memory_allocated() < 2**30
