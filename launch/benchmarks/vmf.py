"""`bench.py vmf`: von Mises-Fisher sampling on one thread, compared with SciPy and a rejection sampler."""

import math
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from launch.benchmarks import Row
from launch.shared.command import say
from pcl.distributions import VonMisesFisher

_WARM_UP = 3  # untimed calls: the first builds tables, and with it alone the first rows were a third slower


def measure(*, samples: int, dim: int, repeats: int) -> list[Row]:
    """Time each sampler; the methods take turns, so that a slow moment affects all of them."""
    torch.set_num_threads(1)
    n = samples
    mu = torch.nn.functional.normalize(torch.ones(dim), dim=0)
    mu_array = mu.double().numpy() / np.linalg.norm(mu.double().numpy())

    def differentiated(kappa: float) -> None:
        parameter = torch.tensor(kappa, requires_grad=True)
        (VonMisesFisher(mu, parameter).rsample((n,)) @ mu).mean().backward()

    methods: dict[str, Callable[[float], object]] = {
        "pcl sample": lambda kappa: VonMisesFisher(mu, kappa).sample((n,)),
        "pcl sample, float64": lambda kappa: VonMisesFisher(mu.double(), kappa).sample((n,)),
        "pcl sample, a kappa each": lambda kappa: VonMisesFisher(mu, torch.full((n,), kappa)).sample(),
        "pcl rsample and backward": differentiated,
        "wood rejection in torch": lambda kappa: wood_sample(mu, kappa, n),
        "scipy rvs": lambda kappa: stats.vonmises_fisher.rvs(mu_array, kappa, size=n),
        "scipy rvs, PCG64": lambda kappa: stats.vonmises_fisher.rvs(
            mu_array, kappa, size=n, random_state=np.random.default_rng(0)
        ),
    }
    say(f"{n:,} samples, D = {dim}, one CPU thread, float32 (SciPy: float64), median of {repeats} calls")
    say(f"{'kappa':>8}  {'method':<26}{'ms':>8}{'M samples/s':>13}{'time / pcl sample':>19}")
    rows: list[Row] = []
    for kappa in (0.5, 20.0, 10_000.0):
        times: dict[str, list[float]] = {name: [] for name in methods}
        for turn in range(_WARM_UP + repeats):
            for name, method in methods.items():
                start = time.perf_counter()
                method(kappa)
                if turn >= _WARM_UP:
                    times[name].append(1e3 * (time.perf_counter() - start))
        ours = statistics.median(times["pcl sample"])
        for name, values in times.items():
            ms = statistics.median(values)
            sizes = {"kappa": kappa, "dim": dim, "samples": n}
            rows.append({**sizes, "method": name, "ms": ms, "all_ms": values, "ratio": ms / ours})
            say(f"{kappa:>8g}  {name:<26}{ms:>8.1f}{n / ms / 1e3:>13.2f}{ms / ours:>19.2f}")
    return rows


def wood_sample(mu: Tensor, kappa: float, n: int) -> Tensor:
    """Return samples (n, D) of vMF(mu, kappa) by Wood's rejection scheme (1994); each round redraws those rejected."""
    m = len(mu) - 1
    b = m / (2 * kappa + math.sqrt(4 * kappa**2 + m**2))
    x0 = (1 - b) / (1 + b)
    c = kappa * x0 + m * math.log1p(-(x0**2))
    proposal = torch.distributions.Beta(torch.tensor(m / 2), torch.tensor(m / 2))
    cosine = torch.empty(n)
    waiting = torch.arange(n)
    while len(waiting):
        beta = proposal.sample((len(waiting),))
        candidate = (1 - (1 + b) * beta) / (1 - (1 - b) * beta)
        log_u = torch.rand(len(waiting)).log()
        accepted = kappa * candidate + m * torch.log(1 - x0 * candidate) - c >= log_u
        cosine[waiting[accepted]] = candidate[accepted]
        waiting = waiting[~accepted]
    tangent = torch.nn.functional.normalize(torch.randn(n, m), dim=-1)
    sine = (1 - cosine.square()).clamp(min=0).sqrt()
    around_first_axis = torch.cat([cosine.unsqueeze(-1), sine.unsqueeze(-1) * tangent], dim=-1)
    axis = mu.clone()
    axis[0] -= 1
    norm = axis.norm()
    if norm < 1e-6:
        return around_first_axis
    axis /= norm
    return around_first_axis - 2 * (around_first_axis @ axis).unsqueeze(-1) * axis
