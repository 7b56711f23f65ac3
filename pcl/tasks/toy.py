"""The controlled experiment: data from a known truth, and an evaluation of how much of it an encoder recovers.

Axes: R runs, B anchors, D dim.
"""

import math
from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pcl.distributions import Sampler
from pcl.encoders import Backbone, Encoder, Inputs, KappaLink, StackedMlp
from pcl.encoders.mlp import KappaHead
from pcl.mathematics.random_streams import streams, uniform_inputs
from pcl.metrics import names
from pcl.metrics.recovery import compare_pairs
from pcl.tasks import judging
from pcl.tasks.base import Batch, Metrics, Negatives, Task, TaskConfig, Truths
from pcl.tasks.pairs import InputSource, LatentSampler, PairRules, Pairs
from pcl.tasks.rules import AcceptanceConstant, NegativeRule, PositiveRule
from pcl.tasks.truth import N_PROBES, SHARED_WIDTHS, Family, MuRecipe, Smoothing, Truth, mu_nets

__all__ = ["AcceptanceConstant", "NegativeRule", "PositiveRule", "ToyTask"]

_TRUE_SAMPLES, _OWN_SAMPLES = 1, 2  # added to a run's seed for the spread by 100 samples, of truth and encoder


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
        is_shared = config.backbone is Backbone.SHARED  # its range over modes differs from that over inputs
        kappa_max = max(config.kappa_max, self.kappa_true.amax().item()) if is_shared else config.kappa_max
        rules = PairRules(
            config.dim_x, config.dim, config.kappa_pos, config.positives, config.acceptance_constant, config.negatives
        )
        self.pairs = Pairs(rules, truth, self.n_runs, kappa_max)
        self._judged: dict[int, tuple[Tensor, Metrics]] = {}

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
        return self.truth.parameters_of(x)

    def draw(
        self, batch_size: int, source: Negatives, n_negatives: int, generator: torch.Generator,
        latents: LatentSampler | None = None, inputs: InputSource | None = None,
    ) -> Batch:  # fmt: skip
        """Draw one batch for every run; see `Pairs.draw`."""
        return self.pairs.draw(batch_size, source, n_negatives, generator, latents, inputs)

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

    def _mu_metrics(self, run: int, mu: Tensor) -> Metrics:
        """Return the recovery of mu; cached, as its fifty million pairs do not change in a phase that keeps mu."""
        judged = self._judged.get(run)
        if judged is None or not torch.equal(judged[0], mu):
            recovery = compare_pairs(mu, self.mu_true[run])
            judged = self._judged[run] = mu.clone(), dict(zip(names.MU_RECOVERY, recovery, strict=True))
        return judged[1]
