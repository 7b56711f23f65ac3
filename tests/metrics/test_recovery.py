import math

import numpy as np
import pytest
import torch
from scipy import stats

from pcl.metrics.recovery import _paired_cosines, _PairsByCounting, _PairsByPackedSort, compare, compare_pairs, spearman
from tests.support.oracles import unit_vectors
from tests.support.pace import within


def all_pairs(mu: torch.Tensor) -> np.ndarray:
    i, j = np.triu_indices(len(mu), k=1)
    return (mu @ mu.T).numpy()[i, j]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_compare_against_numpy_and_scipy(dtype: torch.dtype, generator: torch.Generator) -> None:
    true = torch.rand(10_000, generator=generator, dtype=dtype)
    predicted = (true + 0.3 * torch.rand(10_000, generator=generator, dtype=dtype)).mul(500).round()  # many ties
    result = compare(predicted, true)
    error = predicted.double().numpy() - true.double().numpy()
    assert result.rmse == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-12)
    assert result.mae == pytest.approx(np.mean(np.abs(error)), rel=1e-12)
    assert result.rank_corr == pytest.approx(stats.spearmanr(predicted, true).statistic, abs=1e-9)
    assert result.rmse > result.mae  # an MAE is not called RMSE


def test_rank_correlation_at_its_ends() -> None:
    x = torch.arange(50.0)
    assert spearman(x, x.exp()) == pytest.approx(1)
    assert spearman(x, -x) == pytest.approx(-1)
    assert spearman(x, torch.where(x > 40, torch.inf, x)) == pytest.approx(
        stats.spearmanr(x, np.where(x > 40, np.inf, x)).statistic
    )
    assert math.isnan(spearman(x, torch.ones(50)))
    assert math.isnan(spearman(x, torch.where(x > 40, torch.nan, x)))


@pytest.mark.parametrize("n", [3, 100, 1300])  # within a block of rows and a piece of the sort, and across several
def test_both_ways_over_pairs_agree_with_scipy(n: int, generator: torch.Generator) -> None:
    def rank_correlations(a: torch.Tensor, b: torch.Tensor) -> list[float]:
        ways = _PairsByPackedSort(), _PairsByCounting()
        for cosines in _paired_cosines(a, b):
            for pairs in ways:
                pairs.add(*cosines)
        return [pairs.spearman() for pairs in ways]

    mu_true = unit_vectors(n, 10, generator=generator, dtype=torch.float32)
    mu = torch.nn.functional.normalize(mu_true + 0.3 * torch.randn(n, 10, generator=generator), dim=-1)
    expected = stats.spearmanr(all_pairs(mu), all_pairs(mu_true)).statistic
    assert rank_correlations(mu, mu_true) == pytest.approx([expected] * 2, abs=1e-6 if n > 512 else 1e-9)
    # Cosines of few distinct values, zeros of both signs among them: exact sums, so that every tie is one.
    grid = torch.randint(-1, 2, (n, 4), generator=generator).float() + torch.tensor([0.0, 0.0, 0.0, 4.0])
    expected = stats.spearmanr(all_pairs(grid), all_pairs(mu_true[:, :3].sign())).statistic
    assert rank_correlations(grid, mu_true[:, :3].sign()) == pytest.approx([expected] * 2, abs=1e-9)


def test_compare_pairs_against_numpy(generator: torch.Generator) -> None:
    mu_true = unit_vectors(700, 10, generator=generator)
    mu = unit_vectors(700, 16, generator=generator)
    mu[:, :10] += 3 * mu_true
    mu = torch.nn.functional.normalize(mu, dim=-1)
    result = compare_pairs(mu, mu_true)
    error = all_pairs(mu) - all_pairs(mu_true)
    assert result.rmse == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
    assert result.mae == pytest.approx(np.mean(np.abs(error)), rel=1e-5)
    assert result.rank_corr == pytest.approx(stats.spearmanr(all_pairs(mu), all_pairs(mu_true)).statistic, abs=1e-6)
    rotation, _ = torch.linalg.qr(torch.randn(10, 10, dtype=torch.float64, generator=generator))
    turned = compare_pairs(mu_true @ rotation, mu_true)
    assert turned.rmse < 1e-6
    assert turned.rank_corr > 1 - 1e-9
    assert math.isnan(compare_pairs(mu * torch.nan, mu_true).rank_corr)


@pytest.mark.slow
def test_ten_thousand_points_in_ten_seconds_on_two_cores(generator: torch.Generator) -> None:
    mu_true = unit_vectors(10_000, 10, generator=generator, dtype=torch.float32)
    mu = torch.nn.functional.normalize(mu_true + 0.1 * torch.randn(10_000, 10, generator=generator), dim=-1)
    result = within(10, lambda: compare_pairs(mu, mu_true))
    assert 0.8 < result.rank_corr < 1


@pytest.mark.gpu
def test_ten_thousand_points_in_a_second_on_a_gpu(generator: torch.Generator) -> None:
    mu_true = unit_vectors(10_000, 10, generator=generator, dtype=torch.float32)
    mu = torch.nn.functional.normalize(mu_true + 0.1 * torch.randn(10_000, 10, generator=generator), dim=-1)
    moved = mu.cuda(), mu_true.cuda()
    compare_pairs(*moved)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()  # of other tests
    torch.cuda.reset_peak_memory_stats()
    result = within(1, lambda: compare_pairs(*moved))  # it ends with a wait for the GPU
    assert (torch.cuda.max_memory_allocated() - before) / 2**30 < 1.2
    assert 0.5 < result.rank_corr < 1
    some = [points[:5000] for points in (mu, mu_true)]  # more pairs than are sorted at once; a CPU takes long for all
    on_gpu = compare_pairs(*(points.cuda() for points in some))
    assert on_gpu.rank_corr == pytest.approx(compare_pairs(*some).rank_corr, abs=1e-6)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"Both vectors must have the same length, but got \(3,\) and \(4,\)"):
        compare(torch.ones(3), torch.ones(4))
    with pytest.raises(ValueError, match="At least 2 points must be given, but got 1"):
        compare(torch.ones(1), torch.ones(1))
    with pytest.raises(ValueError, match=r"the same number of vectors, but got \(5, 2\) and \(4, 2\)"):
        compare_pairs(torch.ones(5, 2), torch.ones(4, 2))
    with pytest.raises(ValueError, match="At least 3 points must be given, but got 2"):
        compare_pairs(torch.ones(2, 2), torch.ones(2, 2))
