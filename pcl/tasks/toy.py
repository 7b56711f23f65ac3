"""The controlled experiment: data from a known truth, and an evaluation of how much of it an encoder recovers.

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
from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pcl.distributions import Sampler
from pcl.encoders import Backbone, Encoder, Inputs, KappaLink, StackedMlp
from pcl.encoders.mlp import KappaHead
from pcl.mathematics.random_streams import streams, uniform_inputs
from pcl.metrics import names
from pcl.metrics.recovery import compare_pairs
from pcl.tasks import judging, rules
from pcl.tasks.base import Batch, Metrics, Negatives, Task, TaskConfig, Truths
from pcl.tasks.rules import AcceptanceConstant, IntegratedAcceptance, NegativeRule, PositiveRule
from pcl.tasks.truth import N_PROBES, SHARED_WIDTHS, Family, MuRecipe, Smoothing, Truth, mu_nets

__all__ = ["AcceptanceConstant", "NegativeRule", "PositiveRule", "ToyTask"]

_TRUE_SAMPLES, _OWN_SAMPLES = 1, 2  # added to a run's seed for the spread by 100 samples, of truth and encoder
_MOST_SIZES = 256

_SIZES: dict[tuple[type, TaskConfig, bytes], tuple[int, int, float]] = {}  # by truth: trials share a few

LatentSampler = Callable[[Tensor, Tensor, torch.Generator], Tensor]  # mu, kappa -> z


class InputSource(Protocol):
    """Inputs to draw from, which a batch has either as vectors or as numbers, (R, n, dim_x) or (R, n, 1)."""

    def draw_inputs(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw n inputs for every run."""

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return their true mu, (R, n, D), and kappa, (R, n)."""


class ToyTask(Task):
    """Data and evaluation, on inputs (R, n_eval, dim_x), of R runs, each with a truth of its own."""

    @dataclass(frozen=True)
    class Config(TaskConfig):
        """Settings of the task."""

        dim: int = 10  # dimension D of the true latent space
        dim_x: int = 10  # dimension of the inputs, uniform in the unit cube
        width: int = 10  # hidden width of the truth's networks
        family: Family = Family.VMF  # family of the true posteriors
        kappa_min: float = 16.0  # smallest kappa(x); not used by the Dirac family
        kappa_max: float = 32.0  # largest kappa(x); not used by the Dirac family
        kappa_pos: float = 20.0  # concentration of positive pairs
        kappa_link: KappaLink = KappaLink.ONE_PLUS_EXP  # map from the truth's kappa network to kappa
        backbone: Backbone = Backbone.INDEPENDENT  # input of the truth's kappa network, which is deep if shared
        smoothing: Smoothing = Smoothing.NONE  # smoothing of the truth's mu network
        # Two of a thousand modes must have a cosine of at most this, or the network is redrawn.
        largest_cosine: float = 0.5
        max_draws: int = 20_000  # number of draws after which a run gives up
        sampler: Sampler = Sampler.EXACT  # law of samples from true vMF posteriors
        positives: PositiveRule = PositiveRule.LOGISTIC  # rule by which positives are drawn
        acceptance_constant: AcceptanceConstant = AcceptanceConstant.EXACT  # constant of the logistic rule
        negatives: NegativeRule = NegativeRule.UNIFORM  # negatives that an anchor may have
        n_eval: int = 10_000  # number of evaluation inputs

        def __post_init__(self) -> None:
            for name, least in (("dim", 2), ("dim_x", 1), ("width", 1), ("max_draws", 1), ("n_eval", 3)):
                value = getattr(self, name)
                if value < least:
                    raise ValueError(f"`task.{name} >= {least}` must hold, but got {value}.")
            if not 0 < self.kappa_min < self.kappa_max < math.inf:
                raise ValueError(
                    f"`0 < task.kappa_min < task.kappa_max < inf` must hold, but got {self.kappa_min:g} and "
                    f"{self.kappa_max:g}; for infinite kappa, set `task.family=dirac`."
                )
            if self.kappa_link is KappaLink.ONE_PLUS_EXP and self.kappa_min <= 1:
                raise ValueError(
                    f"`1 < task.kappa_min` must hold for the link one_plus_exp, but got {self.kappa_min:g}."
                )
            if not 0 < self.kappa_pos < math.inf:
                raise ValueError(f"`0 < task.kappa_pos < inf` must hold, but got {self.kappa_pos:g}.")
            self.backbone.check("task", self.dim_x, self.dim)
            if not -1 <= self.largest_cosine <= 1:
                raise ValueError(f"`-1 <= task.largest_cosine <= 1` must hold, but got {self.largest_cosine:g}.")

        @property
        def inputs(self) -> Inputs:
            return Inputs((self.dim_x,), None if self.family is Family.DIRAC else (self.kappa_min, self.kappa_max))

        def probes(self, seeds: Sequence[int]) -> Tensor:
            return uniform_inputs(seeds, "encoder/probes", N_PROBES, self.dim_x)

        def check_negatives(self, sources: Collection[Negatives]) -> None:
            if Negatives.POOL in sources and self.positives is not PositiveRule.VMF:
                raise ValueError("Negatives from the pool need `task.positives=vmf`: only those are chosen by weight.")
            if self.negatives is NegativeRule.REJECT_POSITIVES and any(source.are_common for source in sources):
                raise ValueError(
                    "`task.negatives=reject_positives` needs negatives of each anchor's own, not shared ones."
                )

        def build(self, seeds: Sequence[int]) -> "ToyTask":
            mu_net = deepcopy(mu_nets(self._mu_recipe(), tuple(seeds)))
            kappa_net = self._kappa_net(seeds)
            truth = Truth(mu_net, kappa_net, self.kappa_link, self.family, self.sampler, self.backbone)
            if self.family is not Family.DIRAC:
                self._span(truth.kappa_head, kappa_net, seeds)
            return ToyTask(self, truth, uniform_inputs(seeds, "eval", self.n_eval, self.dim_x))

        def constant_kappa_mae(self, seeds: Sequence[int]) -> float | None:
            """Return the mean over seeds of the true kappas' mean distance from their median."""
            if self.family is Family.DIRAC or type(self).build is not ToyTask.Config.build:
                return None  # another `build` may have another truth
            return self._constant_kappa_mae(tuple(seeds))

        @lru_cache  # noqa: B019  configurations are small, and the trials of a study share a few
        @torch.no_grad()
        def _constant_kappa_mae(self, seeds: tuple[int, ...]) -> float:
            kappa_net, head = self._kappa_net(seeds), KappaHead(self.kappa_link, len(seeds))
            self._span(head, kappa_net, seeds)
            inputs = uniform_inputs(seeds, "eval", self.n_eval, self.dim_x)
            if self.backbone is Backbone.SHARED:
                inputs = normalize(mu_nets(self._mu_recipe(), seeds)(inputs), dim=-1)
            kappa = head(kappa_net(inputs))
            return float((kappa - kappa.median(dim=1, keepdim=True).values).abs().mean())

        def _kappa_net(self, seeds: Sequence[int]) -> StackedMlp:
            return StackedMlp(self._kappa_sizes(), streams(seeds, "truth/kappa"))

        def _kappa_sizes(self) -> tuple[int, ...]:
            hidden = SHARED_WIDTHS if self.backbone is Backbone.SHARED else (self.width,)
            return (self.dim_x, *hidden, 1)

        def _span(self, head: KappaHead, kappa_net: StackedMlp, seeds: Sequence[int]) -> None:
            probes = uniform_inputs(seeds, "truth/probes", N_PROBES, self.dim_x)
            head.span(kappa_net(probes), self.kappa_min, self.kappa_max)

        def restore(self, state: dict[str, Tensor], seeds: Sequence[int] = ()) -> "ToyTask":
            x_eval = state["x_eval"]
            sizes, sources = (self._mu_recipe().sizes, self._kappa_sizes()), [torch.Generator()] * len(x_eval)
            mu_net, kappa_net = (StackedMlp(layers, sources) for layers in sizes)
            truth = Truth(mu_net, kappa_net, self.kappa_link, self.family, self.sampler, self.backbone)
            truth.load_state_dict({name: value for name, value in state.items() if name != "x_eval"})
            return ToyTask(self, truth, x_eval)

        def _mu_recipe(self) -> MuRecipe:
            sizes = (self.dim_x, self.width, self.width, self.dim)
            return MuRecipe(sizes, self.smoothing, self.largest_cosine, self.max_draws)

    def __init__(self, config: Config, truth: Truth, x_eval: Tensor) -> None:
        self.config, self.truth, self.x_eval = config, truth, x_eval
        self.mu_true, self.kappa_true = truth.parameters_of(x_eval)
        self.spread_true = judging.exact_spread(truth.posteriors(self.mu_true, self.kappa_true))
        self._noise_seeds = judging.noise_seeds(x_eval)
        true = map(truth.posteriors, self.mu_true, self.kappa_true)
        self.spread100_true = judging.sampled_spreads(true, self._noise_seeds, _TRUE_SAMPLES)
        self.z_true = judging.true_latents(truth, self.mu_true, self.kappa_true, self._noise_seeds)
        self._threshold = rules.log_uniform_to_vmf(config.kappa_pos, config.dim, config.acceptance_constant)
        is_shared = config.backbone is Backbone.SHARED  # its range over modes differs from that over inputs
        kappa_max = max(config.kappa_max, self.kappa_true.amax().item()) if is_shared else config.kappa_max
        self._integrated_acceptance = IntegratedAcceptance(config.dim, kappa_max, config.kappa_pos)
        self._judged: dict[int, tuple[Tensor, Metrics]] = {}
        key = type(self), config, truth.digest()
        if len(_SIZES) >= _MOST_SIZES:
            _SIZES.clear()
        self.pool_size, self.n_tries, self.pool_failure = _SIZES.get(key) or _SIZES.setdefault(key, self._sizes())

    @property
    def n_runs(self) -> int:
        return len(self.x_eval)

    def state_dict(self) -> dict[str, Tensor]:
        """Return what `Config.restore` needs; a trained truth cannot be redrawn bit by bit on another machine."""
        return {**self.truth.state_dict(), "x_eval": self.x_eval}

    def to(self, device: torch.device) -> "ToyTask":
        self.truth.to(device)
        for name in ("x_eval", "mu_true", "kappa_true", "spread_true", "spread100_true", "z_true"):
            setattr(self, name, getattr(self, name).to(device))
        return self

    def truths(self) -> Truths:
        return Truths(self.x_eval, self.mu_true, self.kappa_true, self.z_true)

    def truth_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.config.family is not Family.VMF:
            raise ValueError(f"A calibration scan needs `task.family=vmf`, but got {self.config.family.value}.")
        return self.parameters_of(x)

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
        config, inputs = self.config, inputs or self
        is_rejecting = source is Negatives.DRAWN and config.negatives is NegativeRule.REJECT_POSITIVES
        is_pool = source is Negatives.POOL
        pool_size = n_negatives if is_pool else self.pool_size
        sizes = [batch_size, pool_size, batch_size * n_negatives if is_rejecting else 0]
        x = inputs.draw_inputs(sum(sizes), generator)
        mu, kappa = inputs.parameters_of(x)
        z, z_pool, z_candidates = (latents or self.truth.latents)(mu, kappa, generator).split(sizes, dim=1)
        anchor, pool, candidates = x.split(sizes, dim=1)
        if config.positives is PositiveRule.LOGISTIC:
            acceptance = self._acceptance(z @ z_pool.mT)
        elif config.family is Family.VMF:
            in_pool = slice(batch_size, batch_size + pool_size)
            acceptance = self._integrated_acceptance(z @ mu[:, in_pool].mT, kappa[:, None, in_pool])
        else:
            acceptance = torch.exp(config.kappa_pos * (z @ z_pool.mT - 1))
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
        return torch.rand(self.n_runs, n, self.config.dim_x, device=generator.device, generator=generator)

    def parameters_of(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the true mu (R, n, D) and kappa (R, n) of inputs."""
        return self.truth.parameters_of(x)

    def evaluate(self, encoder: Encoder) -> list[Metrics]:
        """Return the recovery of kappa, of all pairs of mu and of the spread, and the coverage, for each run."""
        with torch.no_grad():
            posterior = encoder(self.x_eval)
        spread = judging.vmf_spread(posterior)
        spread100 = judging.sampled_spreads(judging.runs_of(posterior), self._noise_seeds, _OWN_SAMPLES)
        coverage = judging.coverage_metrics(posterior, self.mu_true, self.z_true)
        return [
            {
                **self._mu_metrics(run, posterior.mu[run]),
                **judging.kappa_metrics(posterior.kappa[run], self.kappa_true[run]),
                **judging.recovery_metrics(names.SPREAD_RECOVERY, spread[run], self.spread_true[run]),
                **judging.recovery_metrics(names.SPREAD100_RECOVERY, spread100[run], self.spread100_true[run]),
                **coverage[run],
            }
            for run in range(self.n_runs)
        ]

    def _acceptance(self, cosine: Tensor) -> Tensor:
        """Return the probability that the logistic rule calls a pair of latents positive."""
        return torch.sigmoid(self.config.kappa_pos * cosine - self._threshold)

    def _accepted_negatives(self, z: Tensor, x: Tensor, z_x: Tensor, generator: torch.Generator) -> Tensor:
        """Return the first of `n_tries` candidates that is not called positive, for every place: (R, B, N, dim_x).

        A place's own candidate comes first, then those of the next anchors at the same place, so that no anchor sees
        one twice.
        """
        n_runs, batch_size, dim = z.shape
        z_x, x = z_x.view(n_runs, batch_size, -1, dim), x.view(n_runs, batch_size, -1, x.shape[-1])
        n_tries = min(self.n_tries, batch_size)
        around = torch.cat([z_x, z_x[:, : n_tries - 1]], dim=1).unfold(1, n_tries, 1)  # (R, B, N, D, T)
        acceptance = 1 - self._acceptance(torch.einsum("rbd,rbndt->rbnt", z, around))
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
        called_positive = rules.means_in_parts(self._acceptance, z @ z_pool.mT)
        rate = called_positive
        if self.config.positives is PositiveRule.VMF and self.config.family is Family.VMF:
            kappa_pool = kappa[:, None, batch_size:]
            rate = rules.means_in_parts(lambda c: self._integrated_acceptance(c, kappa_pool), z @ mu[:, batch_size:].mT)
        elif self.config.positives is PositiveRule.VMF:
            rate = rules.means_in_parts(lambda c: torch.exp(self.config.kappa_pos * (c - 1)), z @ z_pool.mT)
        return rules.pool_sizes(rate, called_positive)

    def _mu_metrics(self, run: int, mu: Tensor) -> Metrics:
        """Return the recovery of mu; cached, as its fifty million pairs do not change in a phase that keeps mu."""
        judged = self._judged.get(run)
        if judged is None or not torch.equal(judged[0], mu):
            recovery = compare_pairs(mu, self.mu_true[run])
            judged = self._judged[run] = mu.clone(), dict(zip(names.MU_RECOVERY, recovery, strict=True))
        return judged[1]
