"""Negatives that are few images, each encoded once and counted, against the plain step that encodes every copy."""

from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d

from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.data import embedded
from pcl.encoders import ResNetEncoder
from pcl.encoders.batch_norm import CountedBatchNorm2d, Counts, counting
from pcl.encoders.blocks import Pool
from pcl.tasks import CifarTask, Negatives
from pcl.training.run import Run
from pcl.training.steps.distinct_step import DistinctStep
from pcl.training.steps.training_step import TrainingStep
from tests.support.smoke import smoke_images

COUNTS = torch.tensor([3, 0, 1, 1, 7, 2])


@pytest.mark.parametrize(
    ("dtype", "memory_format", "tolerance"),
    [
        (torch.float64, torch.contiguous_format, 1e-12),
        (torch.float32, torch.contiguous_format, 2e-5),
        (torch.float32, torch.channels_last, 2e-5),
    ],
)
def test_counted_batch_norm_is_that_of_copies(
    dtype: torch.dtype, memory_format: torch.memory_format, tolerance: float
) -> None:
    """Output, gradients and running statistics, of channels whose means are far from 0, over several batches."""
    generator = torch.Generator().manual_seed(0)
    plain, counted = nn.BatchNorm2d(4).to(dtype), CountedBatchNorm2d(4).to(dtype)
    nn.init.uniform_(plain.weight, 0.5, 2, generator)
    nn.init.uniform_(plain.bias, -1, 1, generator)
    counted.load_state_dict(plain.state_dict())
    copies = torch.arange(len(COUNTS)).repeat_interleave(COUNTS)
    shares = COUNTS.to(dtype) / COUNTS.sum()
    for batch in range(2):
        x = torch.randn(6, 4, 3, 5, generator=generator, dtype=torch.float64) * (1 + batch) + torch.arange(4).view(
            4, 1, 1
        )
        x = x.to(dtype).contiguous(memory_format=memory_format).requires_grad_()
        ahead = torch.randn(len(copies), 4, 3, 5, generator=generator, dtype=torch.float64).to(dtype)
        expected, ours = (
            _results(plain, x, copies, ahead, None),
            _results(counted, x, copies, ahead, Counts(shares.unsqueeze(1), int(COUNTS.sum()))),
        )
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    assert counted.counts is None
    assert torch.equal(counted(x), nn.BatchNorm2d.forward(counted, x))  # torch's own where nothing is counted


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_statistics_of_half_precision_are_summed_in_full(dtype: torch.dtype) -> None:
    """Channels whose means are up to three deviations from 0; rounding of sums to bfloat16 would be off by 4e-3."""
    x = (torch.randn(6, 4, 8, 8, generator=torch.Generator().manual_seed(0)) + torch.arange(4).view(4, 1, 1)).to(dtype)
    layer, full = CountedBatchNorm2d(4), nn.BatchNorm2d(4).double()
    with counting([layer], Counts((COUNTS / COUNTS.sum()).unsqueeze(1), int(COUNTS.sum()))):
        y = layer(x)
    assert y.dtype is dtype
    expected = full(x.double().repeat_interleave(COUNTS, dim=0))
    torch.testing.assert_close(layer.running_mean.double(), full.running_mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(layer.running_var.double(), full.running_var, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(y.double().repeat_interleave(COUNTS, dim=0), expected, rtol=0.02, atol=0.02)


def _results(layer: nn.BatchNorm2d, x: Tensor, copies: Tensor, ahead: Tensor, counts: Counts | None) -> list[Tensor]:
    if isinstance(layer, CountedBatchNorm2d) and counts is not None:
        with counting([layer], counts):
            y = layer(x)[copies]
    else:
        y = layer(x[copies])
    gradients = torch.autograd.grad((y * ahead).sum(), [x, layer.weight, layer.bias])
    return [y, *gradients, *(buffer.clone() for buffer in layer.buffers())]


def images(profile: str = "reference", loss: str = "mc_info_nce", **values: Any) -> RunConfig:
    small = {"encoder__width": 4, "training__batch_size": 16, "training__n_negatives": 32}
    return smoke_images(profile, loss, **{**small, **values})


@pytest.mark.parametrize("loss", ["mc_info_nce", "hib", "elk"])
def test_a_step_is_the_plain_one(loss: str) -> None:
    """Losses, gradients and batch norm's running statistics of two runs, in float32.

    Losses agree to 1e-5, gradients to 0.2% of the norm of each parameter's: rounding passes 20 batch norms.
    """
    config = images(loss=loss, training__phases="joint")
    counted, plain = (Run(config, (1, 2), is_fast=is_fast).step for is_fast in (True, False))
    assert (type(counted), type(plain)) == (DistinctStep, TrainingStep)
    found = []
    for step in (counted, plain):
        step.enter(Trained.JOINT, Negatives.DRAWN)
        prepared = step.prepare()
        losses = step.mean_losses(prepared)
        losses.sum().backward()
        found.append((prepared[0].shape[1], losses.detach(), step.generator.get_state()))
    assert [n_images for n_images, *_ in found] == [2 * 16 + 256, 2 * 16 + 16 * 32]
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-5, atol=1e-5)
    assert torch.equal(found[0][2], found[1][2])  # the same random numbers
    for (name, ours), theirs in zip(counted.encoder.named_parameters(), plain.encoder.parameters(), strict=True):
        assert ours.grad is not None, name
        assert theirs.grad is not None, name
        assert (ours.grad - theirs.grad).norm() <= 2e-3 * theirs.grad.norm(), name
    for (name, ours), theirs in zip(counted.encoder.named_buffers(), plain.encoder.buffers(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5, msg=name)
    buffers = dict(counted.encoder.named_buffers())
    assert all(int(value) == 1 for name, value in buffers.items() if name.endswith("num_batches_tracked"))


@pytest.mark.parametrize(
    ("values", "is_counted"),
    [
        ({}, True),
        ({"task__negative_pool": "first_256"}, True),
        ({"task__negative_pool": "all"}, False),  # 512 negatives of far more images
        ({"training__n_negatives": 31}, False),  # fewer than twice as many negatives as images
        ({"task__augmentation": "crop_flip"}, False),  # copies differ
    ],
)
def test_where_it_applies(values: dict[str, Any], is_counted: bool) -> None:
    run = Run(images(**values), (1,))
    assert isinstance(run.step, DistinctStep) == is_counted
    assert not isinstance(Run(images(**values), (1,), is_fast=False).step, DistinctStep)


def test_a_users_own_network_is_not_counted() -> None:
    """It may have another batch norm, which would take the statistics of each image once."""

    class Own(ResNetEncoder):  # type: ignore[misc]
        pass

    run = Run(images(), (1,))
    encoder = Own(ResNetEncoder.Config(width=4), [1])
    assert DistinctStep.fits(run.step.task, run.step.encoder, 512)
    assert not DistinctStep.fits(run.step.task, encoder, 512)


def test_a_phase_without_drawn_negatives_and_unequal_pools() -> None:
    run = Run(images(), (1,))
    run.step.enter(Trained.MU, Negatives.IN_BATCH)
    (x,) = run.step.prepare()
    assert x.shape[1] == 2 * 16
    task = CifarTask(CifarTask.Config(), embedded().images, (1, 2))
    assert task.has_pool
    task.folds[1].n_pool -= 1  # as of sets whose parts differ in size
    assert not task.has_pool


def test_training_and_evaluation_go_on_without_counts() -> None:
    """A run with both phases ends; nothing stays counted, so that evaluations are those of its weights."""
    run = Run(images(training__n_batches=2, training__eval_every=2, task__n_eval=20), (1,))
    (report,) = run
    assert report.metrics["train/loss"] < 1e6
    assert all(m.counts is None for m in run.step.encoder.modules() if isinstance(m, CountedBatchNorm2d))


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton comes with torch's CUDA builds")
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({}, "FusedDistinctStep"),
        ({"task__negative_pool": "all"}, "FusedImageStep"),
        ({"training__negatives": "in_batch"}, "FusedImageStep"),
    ],
)
def test_steps_of_a_gpu(values: dict[str, Any], kind: str) -> None:
    run = Run(images(**values), (1,))
    assert run._step_type(run.step.task, run.step.encoder, is_graph=True).__name__ == kind


def test_kernels_compute_training_alone() -> None:
    """Every batch norm and the pooling call theirs in training; an evaluation is torch's own."""
    encoder = ResNetEncoder(ResNetEncoder.Config(width=4), [1])
    of_a_run = torch.randint(256, (1, 5, 3, 32, 32), dtype=torch.uint8)
    layers = [module for module in encoder.modules() if isinstance(module, (CountedBatchNorm2d, Pool))]
    expected = {mode: encoder.train(mode)(of_a_run).mu for mode in (False, True)}
    called: list[nn.Module] = []

    def norm(layer: CountedBatchNorm2d, x: Tensor, added: Tensor | None, has_relu: bool) -> Tensor:
        called.append(layer)
        y = nn.BatchNorm2d.forward(layer, x)
        y = y if added is None else y + added
        return y.relu() if has_relu else y

    def pool(x: Tensor) -> Tensor:
        called.append(layers[1])
        return max_pool2d(x, 3, 2, 1)

    for layer in layers:
        if isinstance(layer, Pool):
            layer.kernel = pool
        else:
            layer.kernel = norm
            layer.reset_running_stats()
    assert isinstance(layers[1], Pool)
    assert torch.equal(encoder.eval()(of_a_run).mu, expected[False])
    assert not called
    torch.testing.assert_close(encoder.train()(of_a_run).mu, expected[True])
    assert {id(layer) for layer in called} == {id(layer) for layer in layers}
    assert len(called) == len(layers) == 21


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "tolerance"), [("float32", 0.01), ("bfloat16", 0.05)])
def test_a_captured_step_is_the_plain_one(precision: str, tolerance: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean losses of 20 batches, the first of them trained before a graph is captured, with the same random numbers."""
    from pcl.training.steps.fused_image_step import FusedDistinctStep  # noqa: PLC0415  needs Triton

    monkeypatch.setattr(FusedDistinctStep, "_fused_loss", lambda self, source: None)  # it draws other numbers
    config = images(encoder__width=64, encoder__precision=precision, training__phases="joint", training__n_batches=20)
    config = config.with_values({"training.batch_size": 64, "loss.n_samples": 64})
    fused, plain = (Run(config, (1, 2), "cuda", is_fast=is_fast) for is_fast in (True, False))
    assert (type(fused.step), type(plain.step)) == (FusedDistinctStep, TrainingStep)
    plain.stepper = type(fused.stepper)(plain.step)
    found = []
    for run in (fused, plain):
        run.stepper.enter(Trained.JOINT, Negatives.DRAWN)
        run.stepper.advance(20, 1e-4)
        found.append(torch.tensor(run.stepper.mean_losses()))
    torch.testing.assert_close(found[0], found[1], rtol=tolerance, atol=tolerance)
    for ours, theirs in zip(fused.step.encoder.buffers(), plain.step.encoder.buffers(), strict=True):
        # In mean: after 20 steps, rounding moves single channels by more.
        assert (ours.float() - theirs.float()).abs().mean() <= 0.02 + 0.05 * theirs.float().abs().mean()


CELLS: list[tuple[str, Trained, Negatives, dict[str, Any]]] = [
    ("mc_info_nce", Trained.JOINT, Negatives.DRAWN, {}),
    # Sums of e^(kappa_pos (x - 1)) over few negatives are 0 in float32 here.
    ("mc_info_nce", Trained.JOINT, Negatives.IN_BATCH, {"training__negatives": "in_batch", "loss__kappa_pos": 64.0}),
    ("mc_info_nce", Trained.MU, Negatives.IN_BATCH, {"training__negatives": "in_batch"}),
    ("mc_info_nce", Trained.KAPPA, Negatives.DRAWN, {"encoder__kappa_phase": "mu_fixed"}),
    ("hib", Trained.JOINT, Negatives.DRAWN, {}),
    ("mc_info_nce", Trained.JOINT, Negatives.DRAWN, {"loss__learn_kappa_pos": True}),
    ("hib", Trained.MU, Negatives.DRAWN, {"loss__learn_a": True, "loss__learned": "a_and_b"}),
]


@pytest.mark.gpu
@pytest.mark.parametrize(("loss", "trained", "source", "values"), CELLS)
def test_fused_losses_have_the_plain_ones_statistics(
    loss: str, trained: Trained, source: Negatives, values: dict[str, Any]
) -> None:
    """Over 100 batches, mean losses and gradients of the last layer and of learned numbers agree within errors."""
    config = images(loss=loss, encoder__precision="float32", training__batch_size=64, **values)
    plain = Run(config, (1, 2), "cuda", is_fast=False)
    fused = Run(config, (1, 2), "cuda")
    found = []
    for run in (plain, fused):
        assert run.step.enter(trained, source)
        rows = []
        for _ in range(100):
            run.step.encoder.zero_grad()
            run.step.losses.zero_grad()
            losses = run.step.mean_losses(run.step.prepare())
            losses.sum().backward()
            run.step.seed_and_step[1] += 1
            heads = [p.grad for name, p in run.step.encoder.named_parameters() if name.split(".")[2] == "1"]
            learned = [p.grad for p in run.step.losses.parameters()]
            some = [grad.flatten()[::3] for grad in (*heads, *learned) if grad is not None]
            rows.append(torch.cat([losses.detach(), *some]))
        assert rows[0].numel() > 20
        found.append(torch.stack(rows).double())
    means, variances = [rows.mean(0) for rows in found], [rows.var(0) / len(rows) for rows in found]
    z = (means[0] - means[1]) / (variances[0] + variances[1]).sqrt().clamp(min=1e-12)
    assert z[:2].abs().max() < 4
    assert z.abs().max() < 5.5
