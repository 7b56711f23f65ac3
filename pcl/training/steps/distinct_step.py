"""The training step for images with few distinct negatives: each is encoded once and counted.

Loss, gradients and statistics are those of `TrainingStep`, its reference, up to rounding; the random numbers are the
same. In the released image experiment the 4,096 negatives of a batch are 256 images.

Axes: R runs, B anchors, N negatives, P images that can be negatives.
"""

import torch
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.encoders import Encoder, ResNetEncoder
from pcl.tasks import CifarTask, Negatives, Task
from pcl.training.steps.training_step import TrainingStep, gathered

_LEAST_COPIES = 2  # counting pays off if an image is a negative at least this many times, on average


class DistinctStep(TrainingStep):
    """A training step that encodes each image that can be a negative once."""

    task: CifarTask
    encoder: ResNetEncoder

    @staticmethod
    def fits(task: Task, encoder: Encoder, n_negatives: int) -> bool:
        """Return whether this step supports batches with so many negatives in all, and is faster than the plain one."""
        if not (isinstance(task, CifarTask) and type(task).draw is CifarTask.draw and type(encoder) is ResNetEncoder):
            return False  # a user's own may draw or normalise in another way
        return task.has_pool and n_negatives >= _LEAST_COPIES * task.n_pool

    def prepare(self) -> tuple[Tensor, ...]:
        """Return distinct images (R, 2 B + P, ...), how often each counts, and the places of the batch's among them.

        Places are (R, 2 B + B N). Without drawn negatives, only the images of the batch are returned.
        """
        if self.source is not Negatives.DRAWN:
            return super().prepare()
        training = self.config.training
        batch = self.task.draw_pooled(training.batch_size, training.n_negatives, self.generator)
        x = torch.cat([batch.anchor, batch.positive, batch.pool], dim=1)
        n_pairs = 2 * training.batch_size
        pairs = torch.arange(n_pairs, device=self.device).expand(len(x), -1)
        places = torch.cat([pairs, n_pairs + batch.negatives.flatten(1)], dim=1)
        counts = torch.zeros(x.shape[:2], device=self.device)
        return x, counts.scatter_add_(1, places, torch.ones_like(places, dtype=counts.dtype)), places

    def encode(self, x: Tensor, *known: Tensor) -> VonMisesFisher:
        """Return posteriors of the batch, (R, 2 B + B N), from those of distinct images."""
        if self.source is not Negatives.DRAWN:
            return super().encode(x, *known)
        counts, places = known
        with self.encoder.counting(counts, places.shape[1]):
            posterior = super().encode(x)
        return gathered(posterior, places)
