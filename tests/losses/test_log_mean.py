"""The logarithm of a mean over few samples, and its correction."""

import math

import pytest
import torch

from pcl.config.run_config import RunConfig
from pcl.distributions import VonMisesFisher
from pcl.losses import MCInfoNCE
from pcl.losses.log_mean import LogMean, log_mean_exp
from pcl.tasks import Negatives
from pcl.training.run import Run
from tests.support.smoke import smoke


def test_two_samples_by_hand() -> None:
    logs = torch.tensor([[0.0, math.log(3)], [0.0, 0.0]], dtype=torch.float64)
    plain, corrected = (log_mean_exp(logs, 1, estimate) for estimate in (LogMean.PLAIN, LogMean.CORRECTED))
    torch.testing.assert_close(plain, torch.tensor([math.log(2), 0.0], dtype=torch.float64))
    # Weights of 1/4 and 3/4: (2 * 10/16 - 1) / (2 * 1); equal samples have no variance.
    torch.testing.assert_close(corrected - plain, torch.tensor([1 / 8, 0.0], dtype=torch.float64))


@pytest.mark.parametrize("n", [4, 8, 32])
def test_the_correction_removes_most_of_the_bias(n: int) -> None:
    """Draw normal x with a standard deviation of 1/2, whose log E e^x is 1/8."""
    generator = torch.Generator().manual_seed(0)
    logs = 0.5 * torch.randn(400_000, n, generator=generator, dtype=torch.float64)
    bias = {estimate: (log_mean_exp(logs, 1, estimate) - 1 / 8).mean().item() for estimate in LogMean}
    assert bias[LogMean.PLAIN] < -0.1 / n
    assert abs(bias[LogMean.CORRECTED]) < 0.2 * abs(bias[LogMean.PLAIN])


def test_one_sample_that_outweighs_all_others_gains_at_most_a_half() -> None:
    logs = torch.tensor([0.0, -1e4, -math.inf], requires_grad=True)
    found = log_mean_exp(logs, 0, LogMean.CORRECTED)
    found.backward()  # type: ignore[no-untyped-call]
    assert found.item() == pytest.approx(0.5 - math.log(3))
    assert logs.grad is not None
    torch.testing.assert_close(logs.grad, torch.tensor([1.0, 0.0, 0.0]))


def test_a_single_sample_has_no_variance() -> None:
    logs = torch.tensor([[0.3], [-2.0]])
    torch.testing.assert_close(log_mean_exp(logs, 1, LogMean.CORRECTED), logs.squeeze(1))


def errors_of_four_samples(lowest: float, highest: float, factor: float) -> tuple[float, float]:
    """Return the errors of the plain and the corrected loss of one batch under `exact`.

    The posteriors are the true ones, with kappas times a factor.
    """
    values: dict[str, float | str] = {"task.kappa_min": lowest, "task.kappa_max": highest}
    config = RunConfig.of(values, profile="exact", scale="quick")
    task, generator = config.task.build([1]), torch.Generator().manual_seed(0)
    batch = task.draw(128, Negatives.POOL, 256, generator)
    anchor, positive, negatives = (
        VonMisesFisher(mu[0], factor * kappa[0], validate_args=False)
        for mu, kappa in (task.truth_of(x.flatten(1, -2)) for x in batch)
    )
    pool = VonMisesFisher(negatives.mu.unsqueeze(0), negatives.kappa.unsqueeze(0), validate_args=False)

    def mean_of(n: int, estimate: str, repeats: int) -> float:
        loss = config.with_values({"loss.n_samples": n, "loss.log_mean": estimate}).loss.build()
        loss.has_tables = True
        losses = [loss(anchor, positive, pool, generator=generator.manual_seed(k)).mean() for k in range(repeats)]
        return float(torch.stack(losses).mean())

    limit = mean_of(1024, "plain", 1)
    return mean_of(4, "plain", 32) - limit, mean_of(4, "corrected", 32) - limit


@pytest.mark.parametrize(("lowest", "highest"), [(16, 32), (64, 128)])
def test_few_corrected_samples_estimate_the_loss_of_many(lowest: float, highest: float) -> None:
    bias, left = errors_of_four_samples(lowest, highest, 1)
    assert bias > 0.01
    assert abs(left) < 0.4 * bias


def test_the_bias_rewards_concentration_unless_it_is_corrected() -> None:
    """Posteriors that are far too concentrated have hardly any bias, so they look better than they are."""
    true, concentrated = (errors_of_four_samples(64, 128, factor) for factor in (1, 30))
    plain, corrected = (a - b for a, b in zip(true, concentrated, strict=True))
    assert plain > 0.01
    assert abs(corrected) < 0.4 * plain


@pytest.mark.parametrize("partners", ["drawn", "integrated"])
def test_every_form_of_the_loss_is_corrected(partners: str) -> None:
    """The loss of a batch is the plain one less the correction of its own samples."""
    config = smoke(profile="exact" if partners == "integrated" else "paper")
    losses = []
    for estimate in LogMean:
        changed = config.with_values({"loss.log_mean": estimate.value, "loss.n_samples": 8})
        assert isinstance(changed.loss.build(), MCInfoNCE)
        step = Run(changed, [1], is_fast=False).step
        losses.append(step.mean_losses(step.prepare()).item())
    assert -0.5 < losses[1] - losses[0] < -1e-3


def test_the_default_is_left_out_of_records() -> None:
    config = smoke()
    assert "loss.log_mean" not in config.flat()
    assert config.with_values({"loss.log_mean": "corrected"}).flat()["loss.log_mean"] == "corrected"
    with pytest.raises(ValueError, match="`log_mean` must be one of"):
        MCInfoNCE.Config(log_mean="none")  # type: ignore[arg-type]
