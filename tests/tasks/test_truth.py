"""The controlled experiment's truth: how its networks are drawn, spread and smoothed."""

import dataclasses
import math
from collections.abc import Iterator

import pytest
import torch

from pcl.distributions import Sampler
from pcl.encoders import StackedMlp
from pcl.mathematics.random_streams import streams
from pcl.tasks import Smoothing, ToyTask
from pcl.tasks.truth import Family, mu_nets, smooth


def test_truth_spans_its_range_and_spreads() -> None:
    task = ToyTask.Config(n_eval=2000).build([4, 5])
    for run in range(2):
        cosines = task.mu_true[run] @ task.mu_true[run].T
        assert cosines.min() < 0.6
        assert 14 < task.kappa_true[run].min() < 18
        assert 28 < task.kappa_true[run].max() < 37


def test_a_seed_has_the_same_truth_alone_and_beside_others() -> None:
    alone, beside = (ToyTask.Config(n_eval=30).build(seeds) for seeds in ([5], [4, 5]))
    assert torch.equal(alone.x_eval[0], beside.x_eval[1])
    torch.testing.assert_close(alone.mu_true[0], beside.mu_true[1])
    torch.testing.assert_close(alone.kappa_true[0], beside.kappa_true[1])


def test_redraws_are_bounded() -> None:
    with pytest.raises(ValueError, match="in 64 draws; raise"):
        ToyTask.Config(n_eval=20, largest_cosine=-1.0, max_draws=64).build([4])


def test_smoothing_gradient_is_autograds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few steps of the written-out gradient end where torch's autograd and Adam do."""
    n_steps, batch = 250, 64
    monkeypatch.setattr("pcl.tasks.truth._SMOOTHING_STEPS", n_steps)
    ours, twin = (StackedMlp((3, 10, 10, 4), streams([4, 5], "net")).double() for _ in range(2))
    smooth(ours, 3, streams([4, 5], "x"))
    drawn = [torch.rand(n_steps, batch, 3, generator=g, dtype=torch.float64) for g in streams([4, 5], "x")]
    inputs = torch.stack(drawn, dim=1)
    optimizer = torch.optim.Adam(twin.parameters(), lr=0.01)
    lower = torch.tril_indices(batch, batch)
    for x in inputs:
        mu = torch.nn.functional.normalize(twin(x), dim=-1)
        distance_x, distance = (d[:, lower[0], lower[1]] for d in (torch.cdist(x, x), 1 - mu @ mu.mT / 2))
        loss = ((distance_x - distance) ** 2 * (math.sqrt(2) - distance.detach()) ** 4).mean(-1).sum()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    for a, b in zip(ours.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.fixture
def _few_smoothing_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The first of them spread the modes; no truth of so few is kept."""
    monkeypatch.setattr("pcl.tasks.truth._SMOOTHING_STEPS", 250)
    mu_nets.cache_clear()
    yield
    mu_nets.cache_clear()


@pytest.mark.usefixtures("_few_smoothing_steps")
def test_smoothing_spreads_the_modes() -> None:
    recipe = {"n_eval": 500, "dim": 10, "dim_x": 10}
    drawn, smoothed = (
        ToyTask.Config(smoothing=smoothing, **recipe).build([4])  # type: ignore[arg-type]
        for smoothing in (Smoothing.NONE, Smoothing.RELEASED)
    )
    mean_cosine = [(task.mu_true[0] @ task.mu_true[0].T).mean().item() for task in (drawn, smoothed)]
    assert mean_cosine[0] > 0.7
    assert abs(mean_cosine[1]) < 0.2
    torch.testing.assert_close(drawn.kappa_true, smoothed.kappa_true)


@pytest.mark.usefixtures("_few_smoothing_steps")  # one sum in another order is seen in the first
def test_a_truth_is_the_same_for_any_number_of_threads() -> None:
    before, drawn = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2, 4):
            torch.set_num_threads(n_threads)
            mu_nets.cache_clear()
            drawn.append(ToyTask.Config(smoothing=Smoothing.RELEASED, n_eval=50).build([4]).mu_true)
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(mu, drawn[0]) for mu in drawn[1:])


def test_pools_are_as_large_as_if_sized_anew() -> None:
    config = ToyTask.Config(dim=3, dim_x=1, n_eval=50, largest_cosine=-0.8)
    first, again, other = config.build([4]), config.build([4]), config.build([5])
    rarer = dataclasses.replace(config, kappa_pos=200.0).build([4])
    wider = dataclasses.replace(config, family=Family.GAUSSIAN).build([4])
    released = dataclasses.replace(config, sampler=Sampler.RELEASED).build([4])
    found = [
        (task.pairs.pool_size, task.pairs.n_tries, task.pairs.pool_failure) for task in (again, rarer, wider, released)
    ]
    assert found == [task.pairs._sizes() for task in (first, rarer, wider, released)]
    assert len(set(found)) == 4
    assert first.truth.digest() == again.truth.digest() != other.truth.digest()
