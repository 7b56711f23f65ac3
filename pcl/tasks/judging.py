"""Metrics of an encoder in the controlled experiment, apart from the pairs of mu."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from pcl.distributions import ProjectedLaplace, ProjectedNormal, VonMisesFisher
from pcl.distributions.cosine import cosine_table
from pcl.metrics import names
from pcl.metrics.coverage import aligned, coverage, least_squares
from pcl.metrics.recovery import compare
from pcl.tasks.base import Metrics
from pcl.tasks.truth import Truth

Posterior = VonMisesFisher | ProjectedNormal | ProjectedLaplace
_SPREAD_PAIRS = 4096  # pairs of noise, for true posteriors that have no closed form
_N_SAMPLES, _SAMPLES_AT_ONCE = 100, 10  # as in the released code; a block of five runs is 20 MB


def vmf_spread(posterior: VonMisesFisher) -> Tensor:
    """Return the mean absolute cosine to the mode, by 64 quantiles of the cosine, in the shape of the batch."""
    n = 64
    middle = (torch.arange(n, dtype=torch.float64) + 0.5) / n
    t = torch.special.ndtri(middle).to(posterior.mu)
    table = cosine_table(posterior.dim, posterior.mu.dtype, posterior.mu.device)
    total = torch.zeros_like(posterior.kappa)
    for block in t.split(8):  # fits the caches
        for cosine in table.cosines(block, posterior.kappa):
            total += cosine.abs()
    return total / n


def exact_spread(posterior: Posterior) -> Tensor:
    """Return the mean absolute cosine to the mode; for families without a closed form, from many samples."""
    if isinstance(posterior, VonMisesFisher):
        return vmf_spread(posterior)
    generator = torch.Generator().manual_seed(0)  # independent of a run's randomness
    return posterior.mean_abs_cosine(_SPREAD_PAIRS, generator)


@torch.no_grad()
def sampled_spread(posterior: Posterior, seed: int) -> Tensor:
    """Estimate the mean absolute cosine to the mode from 100 samples of each posterior of a run, by its own sampler.

    This is how the release judges posteriors of other families. Its noise bounds the rank correlation: at kappa 16 to
    32 and D = 10, two such estimates of the same vMFs have one of about 0.85, and of 0.92 with the exact spread.
    """
    generator = torch.Generator(posterior.mu.device).manual_seed(seed)
    total = torch.zeros_like(posterior.kappa)
    for start in range(0, _N_SAMPLES, _SAMPLES_AT_ONCE):
        n = min(_SAMPLES_AT_ONCE, _N_SAMPLES - start)
        if isinstance(posterior, VonMisesFisher):
            cosines = posterior.sample_mode_cosine((n,), generator)
        else:
            cosines = (posterior.sample((n,), generator) * posterior.mu).sum(-1)
        total += cosines.abs().sum(0)
    return total / _N_SAMPLES


def sampled_spreads(posteriors: Iterable[Posterior], seeds: Iterable[int], offset: int) -> Tensor:
    """Return `sampled_spread` of each run's posteriors, (R, n); different offsets have independent noise."""
    return torch.stack([sampled_spread(of_run, seed + offset) for of_run, seed in zip(posteriors, seeds, strict=True)])


def runs_of(posterior: VonMisesFisher) -> Iterator[VonMisesFisher]:
    """Yield the posteriors (n,) of each run."""
    for mu, kappa in zip(posterior.mu, posterior.kappa, strict=True):
        yield VonMisesFisher(mu, kappa, validate_args=False, law=posterior.law)


def kappa_metrics(kappa: Tensor, kappa_true: Tensor) -> Metrics:
    """Return the level of kappa and, if the truth is finite, its recovery and its line on the true kappa."""
    level = {names.KAPPA_MEAN: kappa.mean().item(), names.KAPPA_MEDIAN: kappa.median().item()}
    if not kappa_true.isfinite().all():
        return level  # an infinite truth has no error and no ranks
    line = least_squares(kappa, kappa_true)
    lines = {names.KAPPA_SLOPE: line.slope, names.KAPPA_INTERCEPT: line.intercept}
    return {**level, **recovery_metrics(names.KAPPA_RECOVERY, kappa, kappa_true), **lines}


def recovery_metrics(keys: tuple[str, ...], predicted: Tensor, true: Tensor) -> Metrics:
    """Return RMSE, MAE and rank correlation under these names."""
    return dict(zip(keys, compare(predicted, true), strict=True))


def noise_seeds(x: Tensor) -> list[int]:
    """Return a noise seed for each run's metrics, from its inputs (R, n, ...): it does not depend on other runs."""
    return [int.from_bytes(hashlib.sha256(of_run.cpu().numpy().tobytes()).digest()[:6]) for of_run in x]


def true_latents(truth: Truth, mu: Tensor, kappa: Tensor, seeds: Sequence[int]) -> Tensor:
    """Draw one latent of each true posterior, (R, n, D), with a seed for each run."""
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    drawn = zip(mu.split(1), kappa.split(1), generators, strict=True)
    return torch.cat([truth.latents(of_mu, of_kappa, generator) for of_mu, of_kappa, generator in drawn])


@torch.no_grad()
def coverage_metrics(posterior: VonMisesFisher, mu_true: Tensor, z_true: Tensor) -> list[Metrics]:
    """Return, for each run, the share of true latents z in the posteriors' credible caps at each level.

    Modes are aligned with the true ones first. Undefined (NaN) where the encoder's sphere has another dimension than
    the truth's, or its mu is not finite.
    """
    keys = list(names.COVERAGE.values())
    if posterior.mu.shape != mu_true.shape:
        return [dict.fromkeys(keys, math.nan)] * len(mu_true)
    levels = torch.tensor(list(names.COVERAGE), dtype=posterior.mu.dtype, device=posterior.mu.device)
    mu = aligned(posterior.mu, mu_true)
    shares = coverage(mu, posterior.credible_threshold(levels.view(-1, 1, 1)), z_true)
    shares = shares.masked_fill(~mu.isfinite().all(-1).all(-1), math.nan)
    return [dict(zip(keys, run, strict=True)) for run in shares.T.tolist()]
