"""A trained encoder as a torch.export program, for programs without MLflow and without this package."""

import warnings
from pathlib import Path

import torch
from torch import Tensor, nn

from pcl.prediction.packed_encoder import PackedEncoder

PROGRAM = "encoder.pt2"


class _Plain(nn.Module):
    """The encoder of one run with tensors in and out: inputs (N, ...) to mu (N, D) and kappa (N,)."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        posterior = self.encoder(x.unsqueeze(0))
        return posterior.mu.squeeze(0), posterior.kappa.squeeze(0)


def export(model: PackedEncoder, path: Path) -> None:
    """Write a program that takes any number of inputs, images as float32 from 0 to 255.

    Raises:
        Exception: Of many kinds, if torch cannot trace the network, which may be a user's own.
    """
    example = torch.rand(2, *model.input_shape) * (255 if model.takes_images else 1)
    batch = torch.export.Dim("batch", min=1)
    with warnings.catch_warnings(action="ignore"):  # torch's, about its own parts
        program = torch.export.export(_Plain(model.encoder), (example,), dynamic_shapes=({0: batch},))
        torch.export.save(program, path)
