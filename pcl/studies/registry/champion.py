"""The model that a study hands over: which trial and seed, what it reached, and what it is compared with."""

from dataclasses import dataclass
from pathlib import Path

import torch

from pcl.data.sources import data_folder, resolve
from pcl.mathematics.random_streams import mixed_seed
from pcl.prediction.packed_encoder import PackedEncoder
from pcl.prediction.posteriors import Reference
from pcl.studies.results.selection import Outcome
from pcl.studies.results.statistics import Estimate, estimate
from pcl.studies.results.yardsticks import shortcomings
from pcl.tasks import CifarTask
from pcl.training.trained_encoder import trained_weights

MOST_REFERENCES = 5_000  # embeddings that a model carries: 160 kB of eight dimensions


@dataclass(frozen=True)
class Champion:
    """A study's winner, and the training of it that becomes the model."""

    study: str  # its name
    space: str  # name of the space or ablation
    objective: str  # the metric that the study ranks by
    winner: str  # key of the trial that won
    taken: Outcome  # the trial whose checkpoint is taken: the winner's configuration on the report seeds, or itself
    key: str  # key of that trial
    checkpoint: Path

    @property
    def is_reported(self) -> bool:
        """Return whether the checkpoint is of the report seeds, which never selected."""
        return self.key != self.winner

    @property
    def numerics(self) -> int | None:
        """Return the numerics version of the training; None where nobody knows."""
        return self.taken.trial.numerics_of(self.key)

    @property
    def metrics(self) -> dict[str, Estimate]:
        """Return every metric's mean over the seeds that have not failed, with its interval."""
        names = dict.fromkeys(name for metrics in self.taken.by_seed.values() for name in metrics)
        return {name: estimate(self.taken.values(name)) for name in names}

    @property
    def shortcomings(self) -> list[str]:
        """Return in words what it is no better than."""
        return shortcomings(self.taken)

    def packed(self, seed: int | None = None) -> PackedEncoder:
        """Read the encoder of a seed, by default the first that has not failed: choosing the best would flatter it.

        Raises:
            ValueError: If the checkpoint cannot be read, or has no such seed.
        """
        trained = trained_weights(self.checkpoint, seed)
        return PackedEncoder(trained.config, trained.seed, trained.weights)


def reference_of(model: PackedEncoder, data: str) -> Reference | None:
    """Embed the training images of the model's fold, all or `MOST_REFERENCES` at random; None for other tasks.

    `data` is the name and fingerprint of the images that it was trained on.

    Raises:
        ValueError: If the images are not there, or have changed since.
    """
    task = model.config.task
    if not isinstance(task, CifarTask.Config):
        return None
    images = resolve(task.data, data_folder(), side=task.side)
    if not data.endswith(images.fingerprint):
        raise ValueError(f"The images {task.data} have changed since the training.")
    fold = CifarTask(task, images, [model.seed]).folds[0]
    generator = torch.Generator().manual_seed(mixed_seed("reference"))
    chosen = torch.randperm(len(fold.images), generator=generator)[:MOST_REFERENCES].sort().values
    return Reference(model.encode(fold.images[chosen]).mu, fold.shares[chosen].argmax(1), images.classes)
