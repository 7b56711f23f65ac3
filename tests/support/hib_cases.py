"""The fused HIB against its reference form; `kernel_cases` runs it."""

import torch

from pcl.distributions import CosineLaw
from pcl.kernels.hib import FusedHIB
from pcl.kernels.inputs import Partners
from pcl.kernels.transport import transport_table
from pcl.losses import Expectation, hib
from tests.support.kernel_reference import draw_noise, fused_hib, partners_of

# Anchors, negatives, dimension, samples, a, b, place of the mean, weight of each negative.
HIB_CASES = [
    (3, 1, 10, 37, 1.0, 0.0, Expectation.MEAN_OF_LOGS, 1.0), (2, 3, 10, 64, 2.0, 1.0, Expectation.LOG_OF_MEAN, 1 / 3),
    (1, 2, 20, 8, 4.0, -8.0, Expectation.LOG_OF_MEAN, 0.25), (2, 2, 4, 5, 300.0, -1e3, Expectation.LOG_OF_MEAN, 0.5),
]  # fmt: skip
HIB_CASES_ON_A_GPU = [(40, 32, 10, 512, 1.0, 0.0, expectation, 1 / 32**2) for expectation in Expectation]


def check_hib(
    device: str, n_anchors: int, n_negatives: int, dim: int, n_samples: int,
    a: float, b: float, expectation: Expectation, weight: float,
) -> None:  # fmt: skip
    """The same random numbers, so the same losses and gradients, up to rounding: of all, of modes, of kappas and a."""
    seed, step = 12345, 7
    scale_and_offset = a * torch.linspace(0.5, 1, n_anchors), torch.full((1,), b)  # of each anchor, of all
    results = []
    for place, trained in (("cpu", range(8)), (device, range(8)), (device, range(3)), (device, range(3, 7))):
        leaves = [leaf.clone().to(place) for leaf in (*partners_of(n_anchors, n_negatives, dim), *scale_and_offset)]
        for index in trained:
            leaves[index].requires_grad_()
        partners, scales = Partners(*leaves[:6]), leaves[6:]
        table = transport_table(dim, CosineLaw(), torch.device(place))
        if not results:
            noise = draw_noise(seed, step, n_samples, partners)
            loss = fused_hib(table, partners, noise, *scales, expectation, weight)
        else:
            kernel = FusedHIB(table, n_samples, expectation is Expectation.LOG_OF_MEAN, weight)
            loss = kernel(partners, *scales, torch.tensor([seed, step], device=place))
        (loss * torch.linspace(1, 2, n_anchors, device=place)).sum().backward()  # type: ignore[no-untyped-call]
        results.append([loss.detach().cpu(), *(None if leaf.grad is None else leaf.grad.cpu() for leaf in leaves)])
        assert [i for i, gradient in enumerate(results[-1][1:]) if gradient is not None] == list(trained)
    reference, *others = results
    for fused in others:
        for expected, found in zip(reference, fused, strict=True):
            assert expected is not None
            # An error of a cosine, 1e-7, is a times as large in what a sigmoid takes.
            assert found is None or (expected - found).abs().max() <= 3e-5 * max(1, a / 10) * expected.abs().max()


def check_hib_of_points(device: str) -> None:
    """Posteriors that are nearly or quite a point have HIB at their modes, with finite gradients."""
    n_anchors, n_negatives, dim = 3, 2, 10
    for kappa, expectation in ((1e14, Expectation.MEAN_OF_LOGS), (torch.inf, Expectation.LOG_OF_MEAN)):
        partners = partners_of(n_anchors, n_negatives, dim)
        modes = [mode.to(device).requires_grad_() for mode in partners[:3]]
        kappas = [torch.full_like(k, kappa).to(device).requires_grad_() for k in partners[3:]]
        table = transport_table(dim, CosineLaw(), torch.device(device))
        scales = [torch.tensor(number, device=device, requires_grad=True) for number in (4.0, 1.0)]
        loss = FusedHIB(table, 8, expectation is Expectation.LOG_OF_MEAN, 0.5)(
            Partners(*modes, *kappas), *scales, torch.tensor([1, 2], device=device)
        )
        anchor, positive, negatives = (mode.detach() for mode in modes)
        similar, others = (anchor * positive).sum(-1), torch.einsum("ad,and->an", anchor, negatives)
        limit = hib(similar.unsqueeze(0), others.unsqueeze(0), 4.0, 1.0, expectation, 0.5)
        torch.testing.assert_close(loss.detach(), limit, rtol=1e-5, atol=1e-5)
        loss.sum().backward()
        assert all(leaf.grad is not None and leaf.grad.isfinite().all() for leaf in (*modes, *kappas, *scales))
