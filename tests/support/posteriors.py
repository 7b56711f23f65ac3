"""Small posteriors for the tests of losses.

Axes: S samples, B anchors, N negatives, D dim.
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.losses import LOSSES
from tests.support.oracles import unit_vectors

S, B, N, D = 6, 4, 3, 5
SAMPLING = ("mc_info_nce", "hib")


def small_config(name: str):
    return replace(LOSSES[name].Config(), n_samples=16) if name in SAMPLING else LOSSES[name].Config()


class Leaves:
    """Posteriors from unconstrained leaves, so that gradients are those an encoder would see."""

    def __init__(self, *batch: int, kappa: float, seed: int, dtype: torch.dtype = torch.float64, dim: int = D) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.direction = torch.randn(*batch, dim, generator=generator, dtype=dtype).requires_grad_()
        self.log_kappa = torch.full(batch, math.log(kappa), dtype=dtype).requires_grad_()

    def posterior(self) -> VonMisesFisher:
        return VonMisesFisher(torch.nn.functional.normalize(self.direction, dim=-1), self.log_kappa.exp())


def triple(kappa: float = 20.0, dtype: torch.dtype = torch.float64, dim: int = D) -> tuple[Leaves, Leaves, Leaves]:
    return (
        Leaves(B, kappa=kappa, seed=1, dtype=dtype, dim=dim),
        Leaves(B, kappa=kappa, seed=2, dtype=dtype, dim=dim),
        Leaves(B, N, kappa=kappa, seed=3, dtype=dtype, dim=dim),
    )


def posteriors(*leaves: Leaves) -> list[VonMisesFisher]:
    return [leaf.posterior() for leaf in leaves]


def drawn_cosines(generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Samples z (S, B, D), z+ (S, B, D), z- (S, B, N, D) and the cosines the pure functions take."""
    z, z_pos = (unit_vectors(S, B, D, generator=generator) for _ in range(2))
    z_neg = unit_vectors(S, B, N, D, generator=generator)
    return z, z_pos, z_neg, (z * z_pos).sum(-1), (z.unsqueeze(2) * z_neg).sum(-1)
