"""The contract that every loss keeps."""

import copy
import math
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest
import torch
from torch import Tensor

from pcl.distributions import ProjectedNormal, VonMisesFisher
from pcl.losses import ELK, HIB, LOSSES, MCInfoNCE, in_batch_negatives
from pcl.losses.hib import Learned
from pcl.losses.learned_scalar import LearnedAs
from tests.support.posteriors import SAMPLING, B, D, Leaves, N, posteriors, small_config, triple


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


@pytest.mark.parametrize("name", [name for name in LOSSES if name not in SAMPLING])
def test_shared_negatives_equal_repeated_ones(name: str) -> None:
    anchor, positive, negatives = posteriors(*triple())
    loss = small_config(name).build()
    shared = VonMisesFisher(negatives.mu[:1], negatives.kappa[:1])
    torch.testing.assert_close(loss(anchor, positive, shared), loss(anchor, positive, shared.expand([B, N])))


@pytest.mark.parametrize("name", SAMPLING)
def test_shared_negatives_have_the_statistics_of_repeated_ones(name: str, generator: torch.Generator) -> None:
    """All anchors see the same samples of shared negatives; losses and gradients agree in mean all the same."""
    leaves, repeats = triple(), 300
    anchor, positive, negatives = posteriors(*leaves)
    shared = VonMisesFisher(negatives.mu[:1], negatives.kappa[:1])
    loss = replace(LOSSES[name].Config(), n_samples=16).build()

    def statistics(negatives: VonMisesFisher) -> tuple[Tensor, Tensor]:
        rows = []
        for _ in range(repeats):
            values = loss(anchor, positive, negatives, generator=generator)
            inputs = [part for leaf in leaves for part in (leaf.direction, leaf.log_kappa)]
            gradients = torch.autograd.grad(values.sum(), inputs, retain_graph=True)
            rows.append(torch.cat([values.detach(), *(gradient.flatten() for gradient in gradients)]))
        return torch.stack(rows).mean(0), torch.stack(rows).var(0) / repeats

    (mean_a, var_a), (mean_b, var_b) = statistics(shared), statistics(shared.expand([B, N]))
    z = (mean_a - mean_b) / (var_a + var_b).sqrt().clamp(min=1e-12)
    assert z.abs().max() < 5
    assert z[var_a > 0].square().mean() < 3


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
    with pytest.raises(ValueError, match=r"the same batch shape \(B,\) with B >= 1, but got \(4,\) and \(4, 3\)"):
        loss(anchor, negatives, negatives)
    empty = VonMisesFisher(torch.ones(0, D, dtype=torch.float64), 1.0)
    with pytest.raises(ValueError, match="with B >= 1"):
        loss(empty, empty, negatives)
    for bad in (VonMisesFisher(torch.ones(B, 0, D, dtype=torch.float64), 1.0), VonMisesFisher(anchor.mu[0], 1.0)):
        with pytest.raises(ValueError, match=r"negatives must have batch shape \(4, N\)"):
            loss(anchor, positive, bad)
    with pytest.raises(ValueError, match=r"need the same dtype, but got .*'negatives': 'torch.float32'"):
        loss(anchor, positive, VonMisesFisher(negatives.mu.float(), negatives.kappa.float()))
    with pytest.raises(ValueError, match="`positive` must be a VonMisesFisher, but got a ProjectedNormal"):
        loss(anchor, ProjectedNormal(positive.mu, 1.0), negatives)
    with pytest.raises(ValueError, match=r"must have batch shape \(4, N\) or \(1, N\).*use in_batch_negatives"):
        loss(anchor, positive, positive)
    with pytest.raises(ValueError, match=r"the same dimension, but got \[5, 6\]"):
        loss(anchor, positive, Leaves(B, N, kappa=1.0, seed=0, dim=6).posterior())


@pytest.mark.parametrize("name", list(LOSSES))
def test_a_scale_that_is_learned_as_itself(name: str) -> None:
    """The parameter is the number; at 0 or below it counts as 1e-6, with a gradient that can bring it back."""
    setting, scale = ("learn_a", "a") if name == "hib" else ("learn_kappa_pos", "kappa_pos")
    config = replace(small_config(name), **{setting: True, "learned_as": LearnedAs.VALUE})
    loss, fixed = config.build(), small_config(name).build()
    arguments = [VonMisesFisher(d.mu.detach(), d.kappa.detach()) for d in posteriors(*triple())]
    values = [one(*arguments, generator=torch.Generator().manual_seed(0)) for one in (loss, fixed)]
    torch.testing.assert_close(values[0], values[1])
    ((parameter_name, parameter),) = loss.named_parameters()
    assert parameter_name == f"{scale}.value"
    assert parameter.item() == getattr(config, scale)
    small = replace(small_config(name), **{scale: 1e-6}).build()
    for value in (0.0, -3.0):
        with torch.no_grad():
            parameter.fill_(value)
        parameter.grad = None
        values = [one(*arguments, generator=torch.Generator().manual_seed(0)) for one in (loss, small)]
        torch.testing.assert_close(values[0], values[1], rtol=0, atol=1e-5)
        values[0].sum().backward()
        assert parameter.grad is not None
        assert parameter.grad.isfinite()
        assert parameter.grad != 0
    twin = config.build()
    twin.load_state_dict(loss.state_dict())
    assert next(twin.parameters()).item() == -3.0


def test_hib_learns_its_offset_too_where_it_is_said() -> None:
    config = replace(small_config("hib"), learn_a=True, learned=Learned.A_AND_B, b=-2.0)
    loss = config.build()
    assert {name: p.item() for name, p in loss.named_parameters()} == {"a.log_factor": 0.0, "b": -2.0}
    loss(*posteriors(*triple()), generator=torch.Generator().manual_seed(0)).sum().backward()
    assert all(p.grad is not None and p.grad != 0 for p in loss.parameters())
    assert not list(replace(config, learn_a=False).build().parameters())


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


@pytest.mark.parametrize("name", SAMPLING)
@pytest.mark.parametrize("are_common", [False, True])
def test_autocast_changes_nothing(name: str, are_common: bool) -> None:
    *pair, negatives = posteriors(*triple(dtype=torch.float32))
    if are_common:
        negatives = VonMisesFisher(negatives.mu[:1], negatives.kappa[:1])
    arguments = (*pair, negatives)
    loss = small_config(name).build()
    plain = loss(*arguments, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        lowered = loss(*arguments, generator=torch.Generator().manual_seed(0))
    assert torch.equal(lowered, plain)
