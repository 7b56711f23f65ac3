"""The training step of images with fused kernels, with the same statistics as `TrainingStep`, its reference.

Kernels compute batch norm with the addition and the ReLU after it, the pooling, and what `FusedLossStep` fuses.
"""

import torch

from pcl.config.run_config import RunConfig
from pcl.encoders import Encoder, ResNetEncoder
from pcl.encoders.batch_norm import CountedBatchNorm2d
from pcl.encoders.blocks import Pool
from pcl.kernels.networks.batch_norm import batch_norm
from pcl.kernels.networks.max_pool import max_pool
from pcl.tasks import Task
from pcl.training.steps.distinct_step import DistinctStep
from pcl.training.steps.fused_loss_step import FusedLossStep


class FusedImageStep(FusedLossStep):
    """A training step of a ResNet on a CUDA device."""

    encoder: ResNetEncoder

    def __init__(self, config: RunConfig, task: Task, encoder: Encoder, device: torch.device, seed: int) -> None:
        super().__init__(config, task, encoder, device, seed)
        for module in self.encoder.modules():
            if isinstance(module, CountedBatchNorm2d):
                module.kernel = batch_norm
            elif isinstance(module, Pool):
                module.kernel = max_pool


class FusedDistinctStep(DistinctStep, FusedImageStep):
    """A fused step that encodes each image that can be a negative once."""
