"""Pairs of the controlled experiment: anchors with their positives and negatives, drawn from a known truth.

Positives. Given an anchor's latent z, a candidate x' is accepted with probability p(x'). From a shared pool of
candidates each anchor takes the one with the smallest u/p, u uniform: every accepted candidate has u/p < 1, uniform
whatever its p, so this is one accepted candidate, uniformly drawn, as rejection sampling returns. There is no loop.
The law of a pair is approximate only if the pool holds no acceptable candidate: `pool_failure`, below 1e-4 as far as
a pool of 4,096 allows (1e-2 for exact positives at D = 10); a candidate is then taken in proportion to its p. Anchors
of a batch share the pool, so that two of them, hence an anchor's positive and an in-batch negative, are occasionally
the same point (0.2% with a pool of 512). Negatives that are rejected because they would pass as positives are replaced
likewise.

Axes: R runs, B anchors, N negatives, P candidates, D dim.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from pcl.tasks.base import Batch, Negatives
from pcl.tasks.rules import (
    AcceptanceConstant,
    IntegratedAcceptance,
    NegativeRule,
    PositiveRule,
    log_uniform_to_vmf,
    means_in_parts,
    pool_sizes,
)
from pcl.tasks.truth import Family, Truth

_MOST_SIZES = 256

_SIZES: dict[tuple[object, ...], tuple[int, int, float]] = {}  # by rules and truth: trials share a few

LatentSampler = Callable[[Tensor, Tensor, torch.Generator], Tensor]  # mu, kappa -> z


class InputSource(Protocol):
    """Source of inputs: vectors (R, n, dim_x), or indices (R, n, 1) of which it knows the parameters."""

    def draw_inputs(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n inputs for every run."""

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return their true mu, (R, n, D), and kappa, (R, n)."""


@dataclass(frozen=True)
class PairRules:
    """The settings of a `ToyTask.Config` that pairs follow."""

    dim_x: int
    dim: int
    kappa_pos: float
    positives: PositiveRule
    acceptance_constant: AcceptanceConstant
    negatives: NegativeRule


class Pairs:
    """Pairs by these rules, for every run of a truth; `kappa_max` is about the largest true kappa."""

    def __init__(self, rules: PairRules, truth: Truth, n_runs: int, kappa_max: float) -> None:
        self.rules, self.truth, self.n_runs = rules, truth, n_runs
        self._threshold = log_uniform_to_vmf(rules.kappa_pos, rules.dim, rules.acceptance_constant)
        self.integrated_acceptance = IntegratedAcceptance(rules.dim, kappa_max, rules.kappa_pos)
        key = rules, kappa_max, truth.family, truth.law, truth.digest()
        if len(_SIZES) >= _MOST_SIZES:
            _SIZES.clear()
        self.pool_size, self.n_tries, self.pool_failure = _SIZES.get(key) or _SIZES.setdefault(key, self._sizes())

    def draw(
        self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator,
        latents: LatentSampler | None = None, inputs: InputSource | None = None,
    ) -> Batch:  # fmt: skip
        """Draw one batch for every run.

        Args:
            batch_size: Number of anchors.
            source: Where negatives come from.
            n_negatives: Number of negatives of each anchor, or of all.
            generator: Source of randomness.
            latents: A faster sampler of the truth's law.
            inputs: Inputs to draw from; by default, every input is a new one.
        """
        rules, inputs = self.rules, self if inputs is None else inputs
        is_rejecting = source is Negatives.DRAWN and rules.negatives is NegativeRule.REJECT_POSITIVES
        is_pool = source is Negatives.POOL
        pool_size = n_negatives if is_pool else self.pool_size
        sizes = [batch_size, pool_size, batch_size * n_negatives if is_rejecting else 0]
        x = inputs.draw_inputs(sum(sizes), generator)
        mu, kappa = inputs.parameters_of(x)
        z, z_pool, z_candidates = (latents or self.truth.latents)(mu, kappa, generator).split(sizes, dim=1)
        anchor, pool, candidates = x.split(sizes, dim=1)
        if rules.positives is PositiveRule.LOGISTIC:
            acceptance = self.acceptance(z @ z_pool.mT)
        elif self.truth.family is Family.VMF:
            in_pool = slice(batch_size, batch_size + pool_size)
            acceptance = self.integrated_acceptance(z @ mu[:, in_pool].mT, kappa[:, None, in_pool])
        else:
            acceptance = torch.exp(rules.kappa_pos * (z @ z_pool.mT - 1))
        u = 1 - torch.rand(acceptance.shape, device=x.device, generator=generator)  # never 0, which any p would accept
        # Uniform clocks choose as rejection does; exponential ones, never 0 either, by the pool's weights.
        clocks = -u.clamp(max=1 - 2**-24).log() if is_pool else u
        chosen = (clocks / acceptance).argmin(-1, keepdim=True)
        positive = pool.gather(1, chosen.expand(-1, -1, pool.shape[-1]))
        if is_rejecting:
            return Batch(anchor, positive, self._accepted_negatives(z, candidates, z_candidates, generator))
        if is_pool:
            return Batch(anchor, positive, pool.unsqueeze(1))
        shape = {Negatives.DRAWN: (batch_size, n_negatives), Negatives.SHARED: (1, n_negatives)}.get(source, (1, 0))
        negatives = inputs.draw_inputs(math.prod(shape), generator)
        return Batch(anchor, positive, negatives.view(self.n_runs, *shape, negatives.shape[-1]))

    def draw_inputs(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n new inputs for every run, (R, n, dim_x)."""
        return torch.rand(self.n_runs, n, self.rules.dim_x, device=generator.device, generator=generator)

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the true mu (R, n, D) and kappa (R, n) of inputs."""
        return self.truth.parameters_of(x)

    def acceptance(self, cosine: Tensor) -> Tensor:
        """Return the probability that the logistic rule calls a pair of latents positive."""
        return torch.sigmoid(self.rules.kappa_pos * cosine - self._threshold)

    def _accepted_negatives(self, z: Tensor, x: Tensor, z_x: Tensor, generator: torch.Generator) -> Tensor:
        """Return the first of `n_tries` candidates that is not called positive, for every place: (R, B, N, dim_x).

        A place's own candidate comes first, then those of the next anchors at the same place, so that no anchor sees
        one twice.
        """
        n_runs, batch_size, dim = z.shape
        z_x, x = z_x.view(n_runs, batch_size, -1, dim), x.view(n_runs, batch_size, -1, x.shape[-1])
        n_tries = min(self.n_tries, batch_size)
        around = torch.cat([z_x, z_x[:, : n_tries - 1]], dim=1).unfold(1, n_tries, 1)  # (R, B, N, D, T)
        acceptance = 1 - self.acceptance(torch.einsum("rbd,rbndt->rbnt", z, around))
        ratio = (1 - torch.rand(acceptance.shape, device=z.device, generator=generator)) / acceptance
        order = torch.arange(n_tries, device=z.device) / n_tries
        tried = torch.where(ratio < 1, order, 1 + ratio).argmin(-1)  # (R, B, N)
        source = (tried + torch.arange(batch_size, device=z.device).view(-1, 1)) % batch_size
        return x.gather(1, source.unsqueeze(-1).expand(-1, -1, -1, x.shape[-1]))

    def _sizes(self) -> tuple[int, int, float]:
        """Return pool size, tries for a negative, and how often the worst run's pool has no acceptable candidate."""
        generator = torch.Generator().manual_seed(0)  # independent of a run's randomness
        batch_size, n_candidates = 512, 4096
        x = self.draw_inputs(batch_size + n_candidates, generator)
        mu, kappa = self.parameters_of(x)
        latents = self.truth.latents(mu, kappa, generator)
        z, z_pool = latents.split([batch_size, n_candidates], dim=1)
        called_positive = means_in_parts(self.acceptance, z @ z_pool.mT)
        rate = called_positive
        if self.rules.positives is PositiveRule.VMF and self.truth.family is Family.VMF:
            kappa_pool = kappa[:, None, batch_size:]
            rate = means_in_parts(lambda c: self.integrated_acceptance(c, kappa_pool), z @ mu[:, batch_size:].mT)
        elif self.rules.positives is PositiveRule.VMF:
            rate = means_in_parts(lambda c: torch.exp(self.rules.kappa_pos * (c - 1)), z @ z_pool.mT)
        return pool_sizes(rate, called_positive)
