"""Scales of losses on the fused path, for two runs side by side; `kernel_cases` runs the cases.

Axes: R runs, B anchors, A = R B.
"""

from copy import deepcopy
from typing import cast

import torch
from torch import Tensor

from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.distributions import VonMisesFisher
from pcl.kernels.inputs import Partners
from pcl.kernels.transport import transport_table
from pcl.losses import HIB, Loss, MCInfoNCE
from pcl.tasks import Negatives
from pcl.training.steps.fused_step import FusedStep
from tests.support.kernel_reference import Noise, draw_noise, fused_hib, fused_mc_info_nce, partners_of

# Loss, profile, negatives, settings, number of learned scales, how far training has moved each of them. The profile
# `reference` learns numbers themselves, `paper` their logarithms.
LEARNED_CASES: list[tuple[str, str, Negatives, dict[str, object], int, float]] = [
    ("mc_info_nce", "reference", Negatives.DRAWN, {"loss.learn_kappa_pos": True}, 1, 90.0),  # too large for one pass
    ("mc_info_nce", "paper", Negatives.IN_BATCH, {"loss.learn_kappa_pos": True}, 1, 0.2),
    ("hib", "reference", Negatives.DRAWN, {"loss.learn_a": True, "loss.b": -2.0}, 2, 0.3),
    ("hib", "paper", Negatives.IN_BATCH, {"loss.learn_a": True, "loss.a": 3.0, "loss.b": 1.0}, 1, 0.2),
    ("hib", "paper", Negatives.DRAWN, {"loss.a": 3.0, "loss.b": 1.0}, 0, 0.0),
]


def check_scales_of_runs(
    device: str, loss: str, profile: str, source: Negatives, values: dict[str, object], n_learned: int, moved: float
) -> None:  # fmt: skip
    """Each of two runs has the loss of its own scales, as if alone, and their gradients; the other run's has none."""
    n_runs, batch_size, n_samples = 2, 2, 9
    n = 1 if source is Negatives.IN_BATCH else (32 if device == "cuda" else 2)
    sizes = {"training.batch_size": batch_size, "training.n_negatives": n, "loss.n_samples": n_samples}
    of_truth = {"task.largest_cosine": 0.9, "task.smoothing": "none"}
    config = RunConfig.of({**of_truth, **sizes, **values}, loss=loss, profile=profile, scale="smoke")
    task, encoder = config.task.build([4, 5]), config.encoder.build_for(config.task.inputs, [4, 5])
    step = FusedStep(config, task, encoder, torch.device(device), seed=1)
    step.enter(Trained.JOINT, source)
    assert step._fused is not None
    parameters = list(step.losses.parameters())
    assert len(parameters) == n_runs * n_learned
    with torch.no_grad():  # as an optimiser does, after the phase has begun
        for index, parameter in enumerate(parameters):
            parameter.add_(moved * (1 + index))

    partners = partners_of(n_runs * batch_size, n, config.encoder.dim)
    # Positives opposite their anchors: with near ones, the gradient in kappa_pos is nearly 0.
    partners = partners._replace(mu_positive=-partners.mu_positive)
    of_runs = [t.to(device).unflatten(0, (n_runs, batch_size)) for t in partners]
    triple = [VonMisesFisher(*pair, validate_args=False) for pair in zip(of_runs[:3], of_runs[3:], strict=True)]
    losses = step.losses_of(*triple)
    noise = draw_noise(1, 0, n_samples, partners)
    for run in range(n_runs):
        anchors = slice(run * batch_size, (run + 1) * batch_size)
        alone = deepcopy(step._loss_of(run)).cpu()
        ours = Partners(*(t[anchors] for t in partners))
        of_noise = Noise(
            noise.tangent[:, anchors], noise.anchor[:, anchors], noise.positive[..., anchors],
            noise.negatives[:, :, anchors],
        )  # fmt: skip
        expected = _mean_loss(config, alone, ours, of_noise)
        torch.testing.assert_close(losses[run].detach().cpu(), expected.detach(), rtol=1e-4, atol=1e-4)
        if n_learned:
            found = torch.autograd.grad(losses[run], parameters, retain_graph=True)
            own = torch.autograd.grad(expected, list(alone.parameters()))
            assert all(own)
            zeros = n_learned * (torch.zeros(()),)
            for gradient, reference in zip(found, (*run * zeros, *own, *(n_runs - 1 - run) * zeros), strict=True):
                torch.testing.assert_close(gradient.cpu(), reference, rtol=1e-3, atol=1e-6)


def _mean_loss(config: RunConfig, loss: Loss, partners: Partners, noise: Noise) -> Tensor:
    """Return the mean loss of a run alone, by the reference forms, from the numbers of its own loss."""
    n = partners.mu_negatives.shape[1]
    table = transport_table(config.encoder.dim, config.encoder.law, torch.device("cpu"))
    if isinstance(loss, HIB):
        of_hib = loss.config
        a, b = torch.as_tensor(loss.a()), torch.as_tensor(loss.offset())
        weight = of_hib.negative_weight.of(n)
        return fused_hib(table, partners, noise, a, b, of_hib.expectation, weight).mean()
    contrast = cast(MCInfoNCE, loss)
    kappa_pos = torch.as_tensor(contrast.kappa_pos())
    return fused_mc_info_nce(table, partners, noise, kappa_pos, contrast.config.positive_weight.of(n)).mean()
