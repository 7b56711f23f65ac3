"""The controlled experiment's data: the truth, positives and negatives against their closed forms."""

import math
from copy import copy, deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from pcl.distributions import VonMisesFisher
from pcl.encoders import Inputs, MlpEncoder
from pcl.metrics.recovery import compare
from pcl.studies.paper.published import published_tables
from pcl.tasks import Family, NegativeRule, Negatives, PositiveRule, Smoothing, ToyTask
from pcl.tasks.judging import noise_seeds, sampled_spread, vmf_spread
from pcl.tasks.rules import AcceptanceConstant, log_uniform_to_vmf

SMALL = {"dim": 3, "dim_x": 1, "n_eval": 50, "largest_cosine": -0.8}


def small_task(**settings: object) -> ToyTask:
    return ToyTask.Config(**{**SMALL, **settings}).build([4])  # type: ignore[arg-type]


def drawn_pairs(task: ToyTask, n: int) -> tuple[Tensor, Tensor]:
    """Anchors and positives of a task with scalar inputs, flat, drawn independently of each other."""
    generator = torch.Generator().manual_seed(0)
    # A few anchors a pool of candidates, as they share it; many runs of one truth, as each has a pool of its own.
    n_anchors, n_runs = 8, 20
    pairs = copy(task.pairs)
    pairs.truth, pairs.n_runs = deepcopy(task.truth), n_runs
    for value in pairs.truth.state_dict(keep_vars=True).values():
        value.data = value.repeat(n_runs, *[1] * (value.ndim - 1))
    batches = [pairs.draw(n_anchors, Negatives.IN_BATCH, 1, generator) for _ in range(n // (n_anchors * n_runs))]
    return tuple(torch.cat([batch[i].flatten() for batch in batches]) for i in (0, 1))  # type: ignore[return-value]


def expected_shares(task: ToyTask, n_bins: int) -> Tensor:
    """P(x+ in bin | x in bin) = E over z ~ P(z|x) of w(x+|z) / integral of w(x'|z), w the acceptance of x' given z.

    The integrals over x, x' and z' are sums over grids and samples, straight from the formulas.
    """
    config = task.config
    generator = torch.Generator().manual_seed(1)
    n_x, n_z, n_candidates, n_latents = 40, 50, 200, 100

    def posteriors(n: int) -> VonMisesFisher:
        grid = ((torch.arange(n) + 0.5) / n).view(1, -1, 1)
        mu, kappa = task.truth.parameters_of(grid)
        return VonMisesFisher(mu[0], kappa[0])

    z = posteriors(n_x).sample((n_z,), generator).transpose(0, 1)  # (n_x, n_z, D)
    latents = posteriors(n_candidates).sample((n_latents,), generator)  # (n_latents, n_candidates, D)
    similarity = config.kappa_pos * torch.einsum("xzd,lcd->xzlc", z, latents)
    if config.positives is PositiveRule.LOGISTIC:
        constant = log_uniform_to_vmf(config.kappa_pos, config.dim, config.acceptance_constant)
        weight = torch.sigmoid(similarity - constant).mean(2)
    else:
        weight = torch.exp(similarity - config.kappa_pos).mean(2)
    share = weight / weight.sum(-1, keepdim=True)  # (n_x, n_z, n_candidates)
    return share.mean(1).view(n_bins, n_x // n_bins, n_bins, -1).sum(-1).mean(1).double()


def p_value(pairs: tuple[Tensor, Tensor], shares: Tensor) -> float:
    """Of drawn pairs under given conditional shares, by a chi-square test."""
    n_bins = len(shares)
    anchor, positive = (torch.clamp((x * n_bins).long(), max=n_bins - 1) for x in pairs)
    counts = torch.zeros(n_bins, n_bins, dtype=torch.float64).index_put_(
        (anchor, positive), torch.ones(len(anchor), dtype=torch.float64), accumulate=True
    )
    expected = counts.sum(-1, keepdim=True) * shares
    statistic = ((counts - expected).square() / expected).sum().item()
    return float(stats.chi2.sf(statistic, n_bins * (n_bins - 1)))


RULES: dict[str, dict[str, object]] = {
    "logistic": {},
    "logistic, fitted constant": {
        "acceptance_constant": AcceptanceConstant.FITTED, "dim": 4, "largest_cosine": 0.0,
    },
    "vmf": {"positives": PositiveRule.VMF},
}  # fmt: skip


@pytest.mark.parametrize("rule", list(RULES))
def test_pairs_follow_the_closed_form(rule: str) -> None:
    task = small_task(**RULES[rule])
    shares, pairs = expected_shares(task, 4), drawn_pairs(task, 12_000)
    assert p_value(pairs, shares) > 1e-3
    # The test can tell: a tenth of the pairs drawn at random instead is rejected.
    assert p_value(pairs, 0.9 * shares + 0.1 / 4) < 1e-3


def test_vmf_weights_do_not_depend_on_who_integrates() -> None:
    """The closed form of the acceptance agrees with the mean over samples of z'."""
    task = small_task(positives=PositiveRule.VMF)
    generator = torch.Generator().manual_seed(0)
    mu, kappa = task.truth.parameters_of(torch.rand(1, 30, 1, generator=generator))
    z = VonMisesFisher(mu[0, :5], kappa[0, :5]).sample(generator=generator)
    closed = task.pairs.integrated_acceptance((z @ mu[0].T)[None], kappa[:, None])[0]
    samples = VonMisesFisher(mu[0], kappa[0]).sample((20_000,), generator)
    sampled = torch.exp(task.config.kappa_pos * (torch.einsum("bd,scd->sbc", z, samples) - 1)).mean(0)
    is_near = closed > 0.05  # far from z, the mean over samples is decided by samples that were not drawn
    ratio = (closed / sampled)[is_near]
    assert is_near.sum() > 10
    assert (ratio / ratio.mean() - 1).abs().max() < 0.05


def test_rejected_negatives_follow_their_law() -> None:
    """Negatives have density proportional to 1 - p, p the probability to be called positive."""
    task = small_task(negatives=NegativeRule.REJECT_POSITIVES)
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1, 4000, 1, generator=generator)
    mu, kappa = task.truth.parameters_of(x)
    latents = task.truth.latents(mu, kappa, generator)
    z = latents[:, :1].expand(-1, 400, -1)  # one anchor, many times
    drawn = task.pairs._accepted_negatives(z, x, latents, generator).flatten()
    called = task.pairs.acceptance((latents @ z[:, :1].mT).squeeze(-1))[0]
    weight = 1 - called
    expected = (x.flatten() * weight).sum() / weight.sum()
    spread = x.std() / math.sqrt(len(drawn))
    assert abs(drawn.mean() - expected) < 5 * spread
    assert called.mean() > 0.05, "nothing would have been rejected"


@pytest.mark.parametrize("source", Negatives)
def test_shapes(source: Negatives) -> None:
    task = ToyTask.Config(n_eval=20, dim=5, dim_x=7, largest_cosine=0.95).build([4, 5])
    batch = task.draw(6, source, 3, torch.Generator().manual_seed(0))
    assert batch.anchor.shape == batch.positive.shape == (2, 6, 7)
    expected = {
        Negatives.DRAWN: (2, 6, 3, 7), Negatives.SHARED: (2, 1, 3, 7), Negatives.POOL: (2, 1, 3, 7),
        Negatives.IN_BATCH: (2, 1, 0, 7),
    }  # fmt: skip
    assert batch.negatives.shape == expected[source]
    assert all(((x >= 0) & (x <= 1)).all() for x in batch)


def test_pool_holds_the_positives_which_are_chosen_by_weight() -> None:
    task = ToyTask.Config(dim=4, n_eval=20, kappa_pos=4.0, positives=PositiveRule.VMF).build([4])
    # Known latents, to weigh the pool by hand.
    batch = task.draw(20_000, Negatives.POOL, 5, torch.Generator().manual_seed(0), lambda mu, _kappa, _generator: mu)
    pool = batch.negatives[0, 0]
    chosen = (batch.positive[0].unsqueeze(1) == pool).all(-1)
    assert (chosen.sum(1) == 1).all()
    (z,), _ = task.truth.parameters_of(batch.anchor)
    (mu,), (kappa,) = task.truth.parameters_of(pool.unsqueeze(0))
    # E e^{kappa_pos z.z'} by samples of z', not by the closed form. It depends on z by z.mu' alone.
    latents = VonMisesFisher(mu, kappa).sample((4000,), torch.Generator().manual_seed(1))
    cosines = torch.linspace(-1, 1, 201).unsqueeze(1)
    across = torch.nn.functional.normalize(mu.roll(1, 0) - (mu.roll(1, 0) * mu).sum(-1, keepdim=True) * mu, dim=-1)
    points = [cosines * mode + (1 - cosines.square()).sqrt() * side for mode, side in zip(mu, across, strict=True)]
    means = [torch.exp(4 * points[i] @ latents[:, i].T).mean(1) for i in range(5)]
    weights = [np.interp(z @ mu[i], cosines.flatten(), means[i]) for i in range(5)]
    weight = torch.from_numpy(np.stack(weights, axis=1))
    share = weight / weight.sum(1, keepdim=True)
    expected, observed = share.sum(0), chosen.sum(0)
    error = (share * (1 - share)).sum(0).sqrt()
    assert ((observed - expected).abs() < 4 * error + 0.002 * len(z)).all()
    assert observed.min() > 100


@pytest.mark.parametrize("family", Family)
def test_families(family: Family) -> None:
    task = ToyTask.Config(n_eval=100, dim=4, dim_x=3, largest_cosine=0.9, family=family).build([4])
    generator = torch.Generator().manual_seed(0)
    mu, kappa = task.truth.parameters_of(task.x_eval)
    z = task.truth.latents(mu, kappa, generator)
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(1, 100))
    assert kappa.isinf().all() == (family is Family.DIRAC)
    assert torch.equal(z, mu) == (family is Family.DIRAC)
    assert ((task.spread_true > 0) & (task.spread_true <= 1)).all()
    assert task.draw(8, Negatives.DRAWN, 2, generator).anchor.shape == (1, 8, 3)


@pytest.mark.parametrize("family", [Family.GAUSSIAN, Family.LAPLACE])
def test_spread_is_that_of_samples_whoever_runs_beside(family: Family) -> None:
    config = ToyTask.Config(n_eval=50, largest_cosine=0.9, family=family)
    together, alone = config.build([4, 5]), config.build([5])
    torch.testing.assert_close(together.spread_true[1], alone.spread_true[0], rtol=0, atol=1e-6)
    z = alone.truth.posteriors(alone.mu_true, alone.kappa_true).sample((20_000,), torch.Generator().manual_seed(1))
    cosines = (z * alone.mu_true).sum(-1).abs()
    error = cosines.std(0) / math.sqrt(20_000)
    assert ((cosines.mean(0) - alone.spread_true) / (error * math.sqrt(1 + 20_000 / 8192))).abs().max() < 4.5
    if family is Family.GAUSSIAN:  # of which kappa alone decides
        assert stats.spearmanr(alone.spread_true[0], alone.kappa_true[0]).statistic > 0.99


def test_the_clocks_of_a_pool_are_never_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A uniform number of 0 would be an exponential one of 0, and choose a candidate of whatever weight."""
    task = ToyTask.Config(n_eval=50, largest_cosine=0.9, positives=PositiveRule.VMF).build([4])
    weights = torch.ones(1, 64, 256).index_fill(-1, torch.tensor([7]), 1e-26)
    uniform = torch.rand

    def with_zeros(*shape: Any, **options: Any) -> Tensor:
        found = uniform(*shape, **options)
        return found.index_fill(-1, torch.tensor([7]), 0.0) if found.shape == weights.shape else found

    monkeypatch.setattr(task.pairs, "integrated_acceptance", lambda *_: weights)
    monkeypatch.setattr(torch, "rand", with_zeros)
    batch = task.draw(64, Negatives.POOL, 256, torch.Generator().manual_seed(0))
    assert not (batch.positive == batch.negatives[:, :, 7]).all(-1).any()


@pytest.mark.parametrize(
    ("family", "rank"), [(Family.VMF, 0.85), (Family.GAUSSIAN, 0.80), (Family.LAPLACE, 0.90), (Family.DIRAC, math.nan)]
)
def test_spread_by_100_samples_bounds_what_a_perfect_encoder_reaches(family: Family, rank: float) -> None:
    """Noise on both sides: the truth itself has these ranks, where the exact spread has a rank of 1."""
    task = ToyTask.Config(n_eval=2000, family=family, largest_cosine=0.95, smoothing=Smoothing.NONE).build([4])
    posterior = task.truth.posteriors(task.mu_true, task.kappa_true)
    true, own = (sampled_spread(posterior, seed) for seed in (1, 2))
    assert not torch.equal(true, own) or family is Family.DIRAC
    assert compare(own[0], true[0]).rank_corr == pytest.approx(rank, abs=0.04, nan_ok=True)
    torch.testing.assert_close(own.mean(), task.spread_true.mean(), rtol=0, atol=2e-3)
    assert torch.equal(own, sampled_spread(posterior, 2))
    if isinstance(posterior, VonMisesFisher):  # cosines alone have the law of whole samples'
        samples = (posterior.sample((100,), torch.Generator().manual_seed(3)) * task.mu_true).sum(-1).abs().mean(0)
        assert stats.ks_2samp(samples[0], own[0]).pvalue > 1e-3 or family is Family.DIRAC


def test_an_evaluation_has_both_spreads() -> None:
    """Compare what is estimated from samples with samples of the truth, not with its exact spread."""
    task = small_task(n_eval=200)
    encoder = MlpEncoder.Config(dim=3).build_for(Inputs((1,)), [4])
    (metrics,) = task.evaluate(encoder)
    posterior = encoder(task.x_eval)
    (seed,) = noise_seeds(task.x_eval)
    true = sampled_spread(task.truth.posteriors(task.mu_true, task.kappa_true), seed + 1)
    expected = compare(sampled_spread(posterior, seed + 2)[0], true[0])
    assert (metrics["eval/spread100_mae"], metrics["eval/spread100_rank_corr"]) == (expected.mae, expected.rank_corr)
    exact = compare(vmf_spread(posterior)[0].detach(), task.spread_true[0])
    assert metrics["eval/spread_mae"] == pytest.approx(exact.mae)
    table = next(table for table in published_tables() if table.name == "tab:toy_distrfamily")
    of_spread = {metric for row in table.rows for metric in row.published if "spread" in metric}
    assert of_spread == {"eval/spread100_mae", "eval/spread100_rank_corr"}  # like with like
    assert {"eval/spread_mae", "eval/spread_rank_corr"} < set(table.columns)


def test_spread_is_the_mean_absolute_cosine() -> None:
    kappa = torch.tensor([0.0, 1.0, 20.0, 300.0])
    mu = torch.nn.functional.normalize(torch.ones(4, 5), dim=-1)
    posterior = VonMisesFisher(mu, kappa)
    cosines = (posterior.sample((40_000,), torch.Generator().manual_seed(0)) * mu).sum(-1).abs()
    torch.testing.assert_close(vmf_spread(posterior), cosines.mean(0), rtol=5e-3, atol=0)


def test_fitted_constant() -> None:
    """Known values of the release's regression and of the exact constant at kappa_pos = 20."""
    fitted, exact = AcceptanceConstant.FITTED, AcceptanceConstant.EXACT
    assert log_uniform_to_vmf(20, 10, fitted) == pytest.approx(9.50, abs=0.01)
    assert log_uniform_to_vmf(20, 10, exact) == pytest.approx(11.15, abs=0.01)
    assert log_uniform_to_vmf(20, 64, fitted) == pytest.approx(-3.03, abs=0.01)
    assert log_uniform_to_vmf(20, 64, exact) == pytest.approx(2.99, abs=0.01)
    assert log_uniform_to_vmf(20, 7, fitted) == log_uniform_to_vmf(20, 7, exact)


def test_restored_task_is_the_same() -> None:
    task = small_task()
    again = task.config.restore(task.state_dict())
    assert torch.equal(task.mu_true, again.mu_true)
    assert torch.equal(task.kappa_true, again.kappa_true)


def test_one_of_several_encoders_can_be_put_back() -> None:
    encoder = MlpEncoder.Config(dim=4).build_for(Inputs((3,)), (1, 2))
    x = torch.rand(2, 5, 3)
    before = encoder(x).mu.clone()
    kept = encoder.run_state(1)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(1)
    encoder.load_run_state(1, kept)
    after = encoder(x).mu
    assert torch.equal(after[1], before[1])
    assert not torch.equal(after[0], before[0])
