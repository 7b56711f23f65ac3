"""A user's own task: the toy's, whose batches are turned to 1 - x at random, and a metric of its own."""

from dataclasses import dataclass, replace
from typing import Any

import torch

from pcl.config.experiments import EXPERIMENTS
from pcl.encoders import Encoder
from pcl.tasks import Batch, Negatives, ToyTask
from pcl.tasks.base import Metrics


class Mirrored(ToyTask):
    @dataclass(frozen=True)
    class Config(ToyTask.Config):
        share: float = 0.5

        def build(self, seeds: Any) -> "Mirrored":
            toy = super().build(seeds)
            return Mirrored(self, toy.truth, toy.x_eval)

        def restore(self, state: Any, seeds: Any = ()) -> "Mirrored":
            toy = super().restore(state, seeds)
            return Mirrored(self, toy.truth, toy.x_eval)

    config: Config

    def draw(self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator) -> Batch:
        batch = super().draw(batch_size, source, n_negatives, generator)
        is_turned = torch.rand(batch.negatives.shape[:3], generator=generator) < self.config.share
        return batch._replace(negatives=torch.where(is_turned.unsqueeze(-1), 1 - batch.negatives, batch.negatives))

    def evaluate(self, encoder: Encoder) -> list[Metrics]:
        return [{**found, "eval/share": self.config.share} for found in super().evaluate(encoder)]


MIRRORED = replace(
    EXPERIMENTS["toy"], task=Mirrored, metrics=(*EXPERIMENTS["toy"].metrics, "eval/share"),
    published={"task.share": 0.25},
)  # fmt: skip
