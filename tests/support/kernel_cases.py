"""The fused kernels against their reference forms: run by `test_kernels`, on a GPU or under Triton's interpreter.

`TRITON_INTERPRET=1 python -m tests.support.kernel_cases` runs every case on a CPU.
"""

import math
from collections.abc import Sequence

import torch

from pcl import kernels
from pcl.config.run_config import RunConfig
from pcl.config.schedule import Trained
from pcl.distributions import CosineLaw
from pcl.encoders import StackedMlp
from pcl.kernels.curves import curves
from pcl.kernels.inputs import Partners
from pcl.kernels.latents import sample_latents
from pcl.kernels.mc_info_nce import FusedMCInfoNCE
from pcl.kernels.networks.narrow_mlp import NarrowMlp
from pcl.kernels.networks.wide_mlp import WideMlp
from pcl.kernels.samples import anchor_samples
from pcl.kernels.transport import transport_table
from pcl.losses import info_nce
from pcl.mathematics.random_streams import streams
from pcl.mathematics.special import bessel_ratio
from pcl.tasks import Negatives
from pcl.training.steps.fused_step import FusedStep
from tests.support.bank_cases import check_a_step_is_freed_at_once, check_bank_of_a_step
from tests.support.hib_cases import HIB_CASES, HIB_CASES_ON_A_GPU, check_hib, check_hib_of_points
from tests.support.image_cases import (
    BATCH_NORM_CASES,
    check_batch_norm,
    check_batch_norm_of_constants,
    check_max_pool,
)
from tests.support.integrated_cases import (
    INTEGRATED_CASES,
    STEP_CASES,
    check_integrated,
    check_integrated_points,
    check_integrated_step,
    check_log_terms,
    check_samples,
)
from tests.support.kernel_reference import draw_noise, fused_mc_info_nce, partners_of
from tests.support.learned_cases import LEARNED_CASES, check_scales_of_runs
from tests.support.oracles import unit_vectors

# Anchors, negatives, dimension, samples, weight of the positive.
MC_CASES = [(3, 1, 10, 37, 1.0), (2, 5, 10, 21, 1.0), (2, 32, 10, 64, 0.0), (2, 3, 20, 8, 1 / 3)]
# Widths, rows, scale of the gradient.
INTERPRETED_WIDE_CASES = [([10, 100, 76, 20, 10], 70, 1.0), ([5, 7, 9, 3], 150, 1e-12)]
WIDE_CASES = [
    *INTERPRETED_WIDE_CASES, ([10, 100, *5 * [500], 100, 10], 1024, 1e-3), ([10, 100, 500, 500, 10], 9000, 1e6),
    ([32, 320, 1600, 1600, 32], 1024, 1e-3),
]  # fmt: skip
LARGE_KAPPA_POS = 200.0
# The interpreter's time grows with anchors and negatives; these have every branch of the kernels.
INTERPRETED_MC_CASES = [(3, 1, 10, 37, 1.0), (2, 3, 10, 21, 1.0), (1, 4, 10, 64, 0.0), (1, 3, 20, 8, 1 / 3)]


def check_mc_info_nce(
    device: str, n_anchors: int, n_negatives: int, dim: int, n_samples: int, weight: float, is_learned: bool
) -> None:  # fmt: skip
    """The same random numbers, so the same losses and gradients, up to rounding.

    A learned kappa_pos differs between anchors, up to where sums of e^(kappa_pos (x - 1)) are 0 in float32.
    """
    kappa_pos = torch.linspace(LARGE_KAPPA_POS, 1.0, n_anchors) if is_learned else torch.tensor(20.0)
    seed, step = 12345, 7
    results = []
    for place in ("cpu", device):
        leaves = [leaf.to(place).requires_grad_() for leaf in partners_of(n_anchors, n_negatives, dim)]
        scale = kappa_pos.clone().to(place).requires_grad_()
        partners = Partners(*leaves)
        table = transport_table(dim, CosineLaw(), torch.device(place))
        if not results:
            noise = draw_noise(seed, step, n_samples, partners)
            loss = fused_mc_info_nce(table, partners, noise, scale, weight)
        else:
            contrast = FusedMCInfoNCE(table, n_samples, weight, math.inf if is_learned else 20.0)
            loss = contrast(partners, scale, torch.tensor([seed, step], device=place))
        (loss * torch.linspace(1, 2, n_anchors, device=place)).sum().backward()  # type: ignore[no-untyped-call]
        gradients = [leaf.grad for leaf in (*leaves, scale)]
        assert all(gradient is not None for gradient in gradients)
        results.append([loss.detach().cpu(), *(gradient.cpu() for gradient in gradients if gradient is not None)])
    for reference, fused in zip(*results, strict=True):
        assert (reference - fused).abs().max() < 1e-6 * kappa_pos.max() * reference.abs().max()


def check_mc_info_nce_of_points(device: str) -> None:
    """Posteriors that are nearly or quite a point have InfoNCE at their modes, with finite gradients."""
    n_anchors, n_negatives, dim = 3, 2, 10
    for kappa in (1e14, 1e30, torch.inf):
        partners = partners_of(n_anchors, n_negatives, dim)
        modes = [mode.to(device).requires_grad_() for mode in partners[:3]]
        kappas = [torch.full_like(k, kappa).to(device).requires_grad_() for k in partners[3:]]
        table = transport_table(dim, CosineLaw(), torch.device(device))
        loss = FusedMCInfoNCE(table, 8, 1.0, 20.0)(
            Partners(*modes, *kappas), torch.full((1,), 20.0, device=device), torch.tensor([1, 2], device=device)
        )
        anchor, positive, negatives = (mode.detach() for mode in modes)
        similar, others = (anchor * positive).sum(-1), torch.einsum("ad,and->an", anchor, negatives)
        torch.testing.assert_close(loss.detach(), info_nce(20 * similar, 20 * others, 1.0), rtol=1e-4, atol=1e-4)
        loss.sum().backward()
        assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in (*modes, *kappas))


def check_samples_along_their_noise(device: str) -> None:
    """Keep samples about 1 long, not hundreds, where the noise is nearly parallel to the mode."""
    seed, step, n_anchors, dim = 12345, 7, 200 if device == "cuda" else 50, 4
    noise = draw_noise(seed, step, 1, partners_of(n_anchors, 1, dim)).tangent[0]
    away = 1e-4 * torch.nn.functional.normalize(noise.roll(1, dims=-1), dim=-1)
    mu = torch.nn.functional.normalize(torch.nn.functional.normalize(noise, dim=-1) + away, dim=-1).to(device)
    curve = curves(transport_table(dim, CosineLaw(), torch.device(device)), torch.ones(n_anchors, device=device))
    z, cosine, _ = anchor_samples(mu, curve, 1, torch.tensor([seed, step], device=device))
    assert cosine.abs().min() < 0.5
    assert z.norm(dim=1).max() < 1.1


def check_what_is_fused(device: str) -> None:
    """A corrected mean is left to the plain loss; so are ELK, and HIB with negatives in common."""
    learned, drawn = {"loss.learn_kappa_pos": True}, Negatives.DRAWN
    for loss, values, source, is_fused in (
        ("mc_info_nce", {}, drawn, True),
        ("mc_info_nce", learned, drawn, True),
        ("mc_info_nce", {**learned, "loss.learned_as": "log"}, Negatives.IN_BATCH, True),
        ("mc_info_nce", learned, Negatives.SHARED, False),
        ("mc_info_nce", {"loss.log_mean": "corrected"}, drawn, False),
        ("hib", {}, drawn, True),
        ("hib", {}, Negatives.IN_BATCH, True),
        ("hib", {}, Negatives.SHARED, False),
        ("hib", {"loss.learn_a": True}, drawn, True),
        ("hib", {"loss.learn_a": True}, Negatives.SHARED, False),
        ("hib", {"loss.n_samples": 4_097}, drawn, False),
        ("elk", learned, drawn, False),
    ):
        of_truth = {"task.largest_cosine": 0.9, "task.smoothing": "none"}
        config = RunConfig.of({**of_truth, **values}, loss=loss, profile="reference", scale="smoke")
        task, encoder = config.task.build([4]), config.encoder.build_for(config.task.inputs, [4])
        step = FusedStep(config, task, encoder, torch.device(device), seed=1)
        step.enter(Trained.JOINT, source)
        assert (step._fused is not None) is is_fused
        assert step._contrast is None
        assert bool(list(step.losses.parameters())) is any("learn" in path for path in values)


def check_narrow_mlp(device: str) -> None:
    n_wide, n_rows = (5, 200) if device == "cuda" else (2, 70)
    net = StackedMlp([10, 10, *n_wide * [50], 10, 1], streams([4, 5], "net")).to(device)
    generator = torch.Generator().manual_seed(0)
    x, upstream = (torch.rand(2, n_rows, n, generator=generator).to(device) for n in (10, 1))
    y = net(x)
    (y * upstream).sum().backward()
    reference = [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
    net.zero_grad()
    fused = NarrowMlp(net)(x)
    (fused * upstream).sum().backward()  # type: ignore[no-untyped-call]
    assert (y - fused).abs().max() < 2e-7, "the forward pass must be as good as float32"
    for gradient, parameter in zip(reference, net.parameters(), strict=True):
        assert parameter.grad is not None
        assert (gradient - parameter.grad).abs().max() < 1e-2 * gradient.abs().max()


def check_wide_mlp(device: str, sizes: Sequence[int], n_rows: int, upstream: float) -> None:
    """Outputs and gradients of any scale are right to ten bits; `frozen` uses the weights packed last."""
    net = StackedMlp(sizes, streams([4, 5], "net")).to(device)
    generator = torch.Generator().manual_seed(0)
    x, ahead = (torch.rand(2, n_rows, n, generator=generator).to(device) for n in (sizes[0], sizes[-1]))
    y = net(x)
    (y * upstream * ahead).sum().backward()
    reference = [parameter.grad.clone() for parameter in net.parameters() if parameter.grad is not None]
    net.zero_grad()
    wide = WideMlp(net)
    fused = wide(x)
    (fused * upstream * ahead).sum().backward()  # type: ignore[no-untyped-call]
    assert (y - fused).abs().max() < 2e-3 * y.abs().max()
    for gradient, parameter in zip(reference, net.parameters(), strict=True):
        assert parameter.grad is not None
        assert (gradient - parameter.grad).norm() < 1e-2 * gradient.norm()
    with torch.no_grad():
        net.weights[0] *= 2
    assert torch.equal(wide.frozen(x), fused)
    assert (wide(x) - net(x)).abs().max() < 2e-3 * net(x).abs().max()
    assert torch.equal(wide.frozen(x), wide(x))


def check_wide_mlp_of_bad_numbers(device: str) -> None:
    """NaN stays, zeros stay zeros, and gradients too large for half precision are cut off."""
    net = StackedMlp([4, 32, 32, 1], streams([4], "net")).to(device)
    x = torch.ones(1, 3, 4, device=device)
    for ahead, is_fine in ((0.0, torch.isfinite), (1e20, torch.isfinite), (torch.nan, torch.isnan)):
        net.zero_grad()
        (WideMlp(net)(x) * ahead).sum().backward()  # type: ignore[no-untyped-call]
        assert all(is_fine(p.grad).all() for p in net.biases if p.grad is not None), ahead
        assert ahead or not any(p.grad.any() for p in net.parameters() if p.grad is not None)
    with torch.no_grad():
        for weight in net.weights[1:]:
            weight.mul_(1e4)
    net.zero_grad()
    WideMlp(net)(x).sum().backward()  # type: ignore[no-untyped-call]
    assert all(p.grad is not None and p.grad.isfinite().all() for p in net.parameters())


def _n_latents(device: str) -> int:
    return 4000 if device == "cuda" else 400


def check_latents(device: str) -> None:
    dim, kappa, n = 10, 20.0, _n_latents(device)
    mu = unit_vectors(dim, generator=torch.Generator().manual_seed(0), dtype=torch.float32).to(device).expand(n, dim)
    table = transport_table(dim, CosineLaw(), torch.device(device))
    z = sample_latents(table, mu, torch.full((n,), kappa, device=device), torch.tensor([5, 3], device=device))
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(n, device=device))
    cosine = (z * mu).sum(-1)
    expected = bessel_ratio(torch.tensor(kappa), dim).item()
    assert abs(cosine.mean().item() - expected) < 4 * cosine.std().item() / n**0.5
    across = (z - cosine.unsqueeze(-1) * mu).mean(0)
    assert across.abs().max() < 5 * (1 / kappa / n) ** 0.5


def check_latents_of_the_truth(device: str) -> None:
    """A step draws data from the truth, also where the encoder has another dimension and the loss is fused."""
    kappa, n = 20.0, _n_latents(device)
    values = {"encoder.dim": 20, "task.largest_cosine": 0.9, "task.smoothing": "none"}
    config = RunConfig.of(values, profile="paper", scale="smoke")
    task, encoder = config.task.build([4]), config.encoder.build_for(config.task.inputs, [4])
    step = FusedStep(config, task, encoder, torch.device(device), seed=1)
    step.enter(Trained.JOINT, Negatives.DRAWN)
    mu = unit_vectors(10, generator=torch.Generator().manual_seed(0), dtype=torch.float32).to(device).expand(n, 10)
    assert step.latents is not None
    z = step.latents(mu, torch.full((n,), kappa, device=device), torch.Generator(device))
    cosine = (z * mu).sum(-1)
    expected = bessel_ratio(torch.tensor(kappa), 10).item()
    assert abs(cosine.mean().item() - expected) < 4 * cosine.std().item() / n**0.5


def check_all(device: str) -> None:
    for case in MC_CASES if device == "cuda" else INTERPRETED_MC_CASES:
        for is_learned in (False, True):
            check_mc_info_nce(device, *case, is_learned)
    check_mc_info_nce_of_points(device)
    for case in HIB_CASES if device == "cpu" else HIB_CASES + HIB_CASES_ON_A_GPU:
        check_hib(device, *case)
    check_hib_of_points(device)
    check_samples_along_their_noise(device)
    check_what_is_fused(device)
    for learned_case in LEARNED_CASES:
        check_scales_of_runs(device, *learned_case)
    for dim, kappa_pos in INTEGRATED_CASES:
        check_integrated(device, dim, kappa_pos)
    check_integrated_points(device)
    for dim in (2, 3, 10):
        check_samples(device, dim)
        check_log_terms(device, dim)
    for case in STEP_CASES:
        check_integrated_step(device, *case)
    for norm_case in BATCH_NORM_CASES:
        check_batch_norm(device, *norm_case)
    check_batch_norm(device, is_counted=True, has_added=True, has_relu=True, dtype=torch.bfloat16)
    check_batch_norm_of_constants(device)
    for height, width in ((6, 8), (5, 7)):
        check_max_pool(device, height, width)
    check_narrow_mlp(device)
    for wide_case in WIDE_CASES if device == "cuda" else INTERPRETED_WIDE_CASES:
        check_wide_mlp(device, *wide_case)
    check_wide_mlp_of_bad_numbers(device)
    check_latents(device)
    check_latents_of_the_truth(device)
    check_bank_of_a_step(device)
    check_a_step_is_freed_at_once(device)


def widen_programs() -> None:
    """Run few programs: the interpreter's time for one does not depend on its width."""
    kernels.latents._ROWS, kernels.curves._BLOCK, kernels.integrated.log_mean._SPLITS = 256, 256, 2
    kernels.networks.batch_norm._MOST_SUMS, kernels.networks.batch_norm._MOST_WRITERS = 2, 1
    kernels.networks.wide_mlp._ROWS_PER_SPLIT = 100  # so that few rows are split


if __name__ == "__main__":
    widen_programs()
    check_all("cpu")
    print("all kernels agree with their reference forms")
