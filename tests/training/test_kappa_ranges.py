"""The range that kappa starts with: over inputs, of a shared backbone, and after a restart."""

import math

import pytest
import torch

from pcl.encoders import Inputs, KappaLink, MlpEncoder
from pcl.encoders.mlp import KappaHead
from pcl.mathematics.random_streams import uniform_inputs
from pcl.tasks import ToyTask
from pcl.training.run import Run
from tests.support.smoke import smoke


@pytest.mark.parametrize("link", KappaLink)
def test_a_restored_encoder_returns_the_same_kappa(link: KappaLink) -> None:
    config = MlpEncoder.Config(dim=4, kappa_link=link)
    x = torch.rand(2, 100, 3, generator=torch.Generator().manual_seed(0))
    encoder = config.build_for(Inputs((3,)), (4, 5))
    encoder.begin(x)
    kappa = encoder(x).kappa
    torch.testing.assert_close(kappa.amin(1), torch.full((2,), 16.0), rtol=1e-3, atol=0)
    torch.testing.assert_close(kappa.amax(1), torch.full((2,), 32.0), rtol=1e-3, atol=0)
    other = config.build_for(Inputs((3,)), (6, 7))
    other.load_state_dict(encoder.state_dict())
    assert torch.equal(other(x).kappa, kappa)
    same = x[:, :1].expand_as(x)
    encoder.begin(same)
    torch.testing.assert_close(encoder(same).kappa, torch.full((2, 100), 32.0), rtol=0.01, atol=0)


@pytest.mark.parametrize("link", KappaLink)
@pytest.mark.parametrize("level", [-40.0, 0.0, 0.02, 0.7, 40.0])
def test_a_range_of_rounding_becomes_no_scale(link: KappaLink, level: float) -> None:
    """Rows of one product may differ in their last place, by where they stand; twice that is still no range."""
    y = torch.full((1, 8, 1), level)
    y[:, ::2] = torch.nextafter(y[:, ::2], torch.tensor(100.0))
    y[:, ::4] = torch.nextafter(y[:, ::4], torch.tensor(100.0))
    head = KappaHead(link, 1)
    head.span(y, 16.0, 32.0)
    torch.testing.assert_close(head(y), torch.full((1, 8), 32.0), rtol=1e-4, atol=0)


def test_a_small_range_is_spanned_as_ever() -> None:
    """One of 8e-7, as modes in nearly one place have: the scale is that of 1e-6, to the last bit."""
    y = torch.tensor([0.1, 0.1 + 8e-7]).view(1, 2, 1)
    head = KappaHead(KappaLink.ONE_PLUS_EXP, 1)
    head.span(y, 16.0, 32.0)
    assert head.scale.item() == ((math.log(31) - math.log(15)) / torch.tensor(1e-6)).item()
    head.span(y * 100, 16.0, 32.0)
    torch.testing.assert_close(head(y * 100), torch.tensor([[16.0, 32.0]]), rtol=0.01, atol=0)


def test_a_shared_backbone_starts_near_its_range_and_mu_moves_its_kappa() -> None:
    """As in the release: the range is set over inputs fed into the network on top of mu, in the truth as well."""
    values = {"training__n_batches": 80, "training__eval_every": 40, "training__lr": 1e-3, "task__n_eval": 200}
    shared = {"encoder__backbone": "shared", "task__backbone": "shared", "encoder__hidden": "deep", "task__dim_x": 4}
    run = Run(smoke("reference", **values, **shared), (4, 5))
    encoder, task = run.step.encoder, run.step.task
    assert isinstance(encoder, MlpEncoder)
    assert isinstance(task, ToyTask)
    assert [len(net.weights) for net in (encoder.kappa_net, task.truth.kappa_net)] == [8, 7]
    assert [net.weights[0].shape[1] for net in (encoder.kappa_net, task.truth.kappa_net)] == [4, 4]
    probes = run.config.task.probes((4, 5))
    with torch.no_grad():
        for part, ends in ((encoder, probes), (task.truth, uniform_inputs((4, 5), "truth/probes", 1000, 4))):
            kappa = part.kappa_head(part.kappa_net(ends))
            torch.testing.assert_close(kappa.amin(1), torch.full((2,), 16.0), rtol=1e-2, atol=0)
            torch.testing.assert_close(kappa.amax(1), torch.full((2,), 32.0), rtol=1e-2, atol=0)
        mu, kappa = task.truth.parameters_of(probes)
        torch.testing.assert_close(kappa, task.truth.kappa_head(task.truth.kappa_net(mu)))
    fresh = [parameter.clone() for parameter in encoder.kappa_parameters()]
    first_kappa = encoder(task.x_eval).kappa.detach()
    reports = iter(run)
    first = next(reports)
    assert first.phase == "mu"
    assert all(map(torch.equal, fresh, encoder.kappa_parameters()))
    assert not torch.equal(encoder(task.x_eval).kappa, first_kappa)
    assert all(1 < metrics["eval/kappa_median"] < 1000 for metrics in first.by_seed.values())
    second = next(reports)
    assert second.phase == "kappa"
    assert not any(map(torch.equal, fresh, encoder.kappa_parameters()))
    assert first.metrics["eval/mu_mae"] == second.metrics["eval/mu_mae"]
    constant = run.config.task.constant_kappa_mae((4, 5))  # type: ignore[attr-defined]
    medians = task.kappa_true.median(dim=1, keepdim=True).values
    assert constant == pytest.approx((task.kappa_true - medians).abs().mean().item(), rel=1e-4)
