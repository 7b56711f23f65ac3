"""A fused step of images against the plain one, under Triton's interpreter.

Run it by `TRITON_INTERPRET=1 python -m tests.support.image_step_case`.
"""

import torch

from pcl.config.schedule import Trained
from pcl.encoders.batch_norm import CountedBatchNorm2d
from pcl.kernels.networks.batch_norm import batch_norm
from pcl.tasks import Negatives
from pcl.training.run import Run
from pcl.training.steps.fused_image_step import FusedImageStep
from pcl.training.steps.training_step import TrainingStep
from tests.support.kernel_cases import widen_programs
from tests.support.smoke import smoke_images


def check_image_step() -> None:
    """Losses, gradients and running statistics agree with the plain step's, with the same random numbers."""
    sizes = {"training__batch_size": 4, "loss__n_samples": 4, "encoder__width": 2}  # the interpreter is slow
    config = smoke_images(profile="reference", encoder__precision="float32", **sizes)
    steps: list[TrainingStep] = []
    losses = []
    for kind in (TrainingStep, FusedImageStep):
        run = Run(config, (1,), is_fast=False)
        step = kind(config, run.step.task, run.step.encoder, run.device, seed=1)
        step.enter(Trained.JOINT, Negatives.IN_BATCH)
        if isinstance(step, FusedImageStep):
            assert step._fused is not None
            step._fused = None  # it draws other numbers
        of_runs = step.mean_losses(step.prepare())
        of_runs.sum().backward()
        losses.append(of_runs.detach())
        steps.append(step)
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-5, atol=1e-5)
    plain, fused = (step.encoder for step in steps)
    assert all(layer.kernel is batch_norm for layer in fused.modules() if isinstance(layer, CountedBatchNorm2d))
    for (name, ours), theirs in zip(fused.named_parameters(), plain.parameters(), strict=True):
        assert ours.grad is not None, name
        assert theirs.grad is not None, name
        assert (ours.grad - theirs.grad).norm() <= 2e-3 * theirs.grad.norm(), name
    for (name, found), expected in zip(fused.named_buffers(), plain.buffers(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5, msg=name)


if __name__ == "__main__":
    widen_programs()
    check_image_step()
    print("the fused step of images agrees with the plain one")
