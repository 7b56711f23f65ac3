"""The profile `exact` on images: the likelihood of a choice among candidates, and its training."""

import math

import numpy as np
import pytest
import torch
from scipy import special

from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.encoders.batch_norm import CountedBatchNorm2d
from pcl.losses import LOSSES
from pcl.tasks import Negatives
from pcl.training.run import Run
from pcl.training.steps.distinct_step import DistinctStep
from pcl.training.steps.training_step import TrainingStep
from tests.support.smoke import smoke_images


def exact(**values: object) -> RunConfig:
    return smoke_images("exact", **values)


def likelihood_on_the_circle(anchor: VonMisesFisher, pool: VonMisesFisher, chosen: int, kappa_pos: float) -> float:
    """E over z ~ vMF(anchor) of w(x+|z) / sum_x' w(x'|z), by a sum over angles and a loop over candidates; D = 2."""
    angles = 2 * math.pi * np.arange(4000) / 4000
    z = np.stack([np.cos(angles), np.sin(angles)], 1)
    mu, kappa = anchor.mu.detach().double().numpy(), float(anchor.kappa)
    density = np.exp(kappa * (z @ mu - 1))
    weights = []
    for mode, k in zip(pool.mu.detach().double().numpy(), pool.kappa.detach().double().tolist(), strict=True):
        resultant = np.sqrt(k**2 + kappa_pos**2 + 2 * k * kappa_pos * (z @ mode))
        # E e^{kappa_pos z.z'} = I0(resultant) / I0(kappa')
        weights.append(special.ive(0, resultant) / special.ive(0, k) * np.exp(resultant - k - kappa_pos))
    share = weights[chosen] / np.sum(weights, axis=0)
    return float((density * share).sum() / density.sum())


def test_the_loss_is_the_likelihood_of_the_choice() -> None:
    """-log L - log N of each anchor, in their mean; 4,000 guided samples are off by less than 1%."""
    config = exact(
        encoder__dim=2, encoder__head_gain=4, loss__n_samples=4000, loss__kappa_pos=4, training__n_negatives=12
    )
    step = Run(config, (1,)).step
    step.enter(Trained.JOINT, Negatives.POOL)
    prepared = step.prepare()
    x, chosen = prepared
    n_anchors, n = config.training.batch_size, config.training.n_negatives
    assert x.shape[1] == n_anchors + n  # each image once
    with torch.no_grad():
        step.encoder.train()
        posterior = step.encoder(x)
        (loss,) = step.mean_losses(prepared).tolist()
    laws = [VonMisesFisher(posterior.mu[0, i], posterior.kappa[0, i]) for i in range(n_anchors)]
    pool = VonMisesFisher(posterior.mu[0, n_anchors:], posterior.kappa[0, n_anchors:])
    each = [likelihood_on_the_circle(law, pool, int(i), 4.0) for law, i in zip(laws, chosen[0], strict=True)]
    assert loss == pytest.approx(-np.log(each).mean() - math.log(n), abs=0.01)
    assert np.std(each) > 0.01  # the choices matter


def test_gradients_reach_everything() -> None:
    step = Run(exact(), (1, 2)).step
    for trained in Trained:
        parameters = step.enter(trained, Negatives.POOL)
        step.mean_losses(step.prepare()).sum().backward()
        for parameter in parameters:
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()
            assert parameter.grad.abs().sum() > 0


def test_runs_side_by_side_have_the_losses_of_their_own() -> None:
    """Two runs' posteriors are not mixed: each loss is that of the run's own part."""
    step = Run(exact(), (1, 2)).step
    step.enter(Trained.JOINT, Negatives.POOL)
    x, chosen = step.prepare()
    triple = step._triple(step.encode(x, chosen))
    n = step.config.training.batch_size
    anchor, positive, negatives = triple
    assert negatives.batch_shape == (2, 1, step.config.training.n_negatives)
    for run in (0, 1):
        assert torch.equal(positive.mu[run], negatives.mu[run, 0, chosen[run]])
        assert torch.equal(positive.kappa[run], negatives.kappa[run, 0, chosen[run]])
        pixels = (x[run] - step.encoder.mean) / step.encoder.deviation
        embedded = step.encoder.nets[run](pixels)  # of the run's own network
        torch.testing.assert_close(anchor.mu[run], torch.nn.functional.normalize(embedded[:n], dim=-1))


def test_batch_norm_sees_every_image_once() -> None:
    """The running mean of the first layer is that of anchors and candidates, with no second copy of the positives."""
    step = Run(exact(), (1,)).step
    step.enter(Trained.JOINT, Negatives.POOL)
    x, chosen = step.prepare()
    first, norm = (step.encoder.nets[0][0][i] for i in (0, 1))
    step.encode(x, chosen)
    with torch.no_grad():
        expected = first((x[0] - step.encoder.mean) / step.encoder.deviation).mean((0, 2, 3))
    torch.testing.assert_close(norm.running_mean, norm.momentum * expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("loss", list(LOSSES))
def test_every_loss_trains_at_smoke(loss: str) -> None:
    run = Run(smoke_images("exact", loss, task__n_eval=20), (1, 2))
    *_, last = run
    assert not last.failures
    assert {"val/crop_rank_corr", "test/entropy_rank_corr", "test/recall_at_1"} <= set(last.metrics)


def test_phases_with_drawn_negatives_beside_the_pool() -> None:
    """A phase with candidates has the plain step, also where drawn negatives are counted."""
    values = {"training__negatives": "drawn", "training__mu_phase_negatives": "pool", "training__phases": "mu kappa"}
    sizes = {"training__batch_size": 16, "training__n_negatives": 32, "task__negative_pool": "modulo_256"}
    counted, plain = (Run(exact(**values, **sizes), (1,), is_fast=is_fast).step for is_fast in (True, False))
    assert (type(counted), type(plain)) == (DistinctStep, TrainingStep)
    found = []
    for step in (counted, plain):
        step.enter(Trained.MU, Negatives.POOL)
        found.append(step.mean_losses(step.prepare()).detach())
    torch.testing.assert_close(*found)
    assert all(m.counts is None for m in counted.encoder.modules() if isinstance(m, CountedBatchNorm2d))


def test_a_checkpoint_goes_on_to_the_bit(tmp_path: object) -> None:
    config = exact(task__n_eval=20)
    whole, part = Run(config, (1,)), Run(config, (1,))
    *_, expected = whole
    next(iter(part))
    part.save(tmp_path / "run.pt")  # type: ignore[operator]
    *_, found = Run.restore(tmp_path / "run.pt")  # type: ignore[operator]
    assert found.metrics["train/loss"] == expected.metrics["train/loss"]


def test_the_recipe() -> None:
    flat = RunConfig.of(profile="exact", task="images").flat()
    expected = {
        "training.negatives": "pool", "training.mu_phase_negatives": "pool", "training.n_negatives": 256,
        "training.batch_size": 128, "loss.n_samples": 32, "loss.anchors": "guided", "loss.partners": "integrated",
        "loss.positive_weight": "zero", "training.phases": "mu joint", "training.n_batches": 1024,
        "task.augmentation": "crop_flip", "training.keep": "last",
    }  # fmt: skip
    assert {path: flat[path] for path in expected} == expected
    of_hib = RunConfig.of(profile="exact", task="images", loss="hib").flat()
    assert (of_hib["training.n_negatives"], of_hib["training.phases"]) == (256, "mu kappa")
    for scale in ("smoke", "quick"):
        assert RunConfig.of(profile="exact", task="images", scale=scale).training.n_negatives >= 10  # classes


@pytest.mark.parametrize(("profile", "expected"), [("exact", TrainingStep), ("reference", DistinctStep)])
def test_candidates_are_not_counted_as_drawn_negatives_are(profile: str, expected: type[TrainingStep]) -> None:
    """However many they are: a step that counts has no kernels for `exact`."""
    config = smoke_images(profile, training__batch_size=64, training__n_negatives=128)
    assert type(Run(config, (1,)).step) is expected


@pytest.mark.gpu
@pytest.mark.parametrize("encoder", ["", "classifier"])
def test_a_captured_step_has_the_plain_ones_loss(encoder: str) -> None:
    """In the mean over 60 batches at a rate of 0, as the two draw other random numbers; and it trains without NaN."""
    values = {"task.data": "embedded", "encoder.width": 16, "training.batch_size": 64, "training.n_negatives": 128}
    config = RunConfig.of(values, profile="exact", task="images", scale="smoke", encoder=encoder)
    found = []
    for is_fast in (True, False):
        run = Run(config, (1, 2), "cuda", is_fast=is_fast)
        fast = "FusedImageStep" if encoder == "" else "IntegratedStep"
        assert type(run.step).__name__ == (fast if is_fast else "TrainingStep")
        run.stepper.enter(Trained.JOINT, Negatives.POOL)
        assert (getattr(run.step, "_contrast", None) is not None) is is_fast
        run.stepper.advance(60, 0.0)  # a plain step is thousands of small kernels
        found.append(torch.tensor(run.stepper.mean_losses()))
        run.stepper.advance(10, 1e-4)
        assert all(math.isfinite(loss) for loss in run.stepper.mean_losses())
    torch.testing.assert_close(found[0], found[1], rtol=0.02, atol=0.1)  # one standard error is 0.03
