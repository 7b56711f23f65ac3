"""The kernels of images against torch's own layers; see `tests.support.kernel_cases`."""

from itertools import product

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool2d, relu

from pcl.encoders.batch_norm import CountedBatchNorm2d, Counts
from pcl.kernels.networks.batch_norm import batch_norm
from pcl.kernels.networks.max_pool import max_pool

COUNTS = torch.tensor([3, 0, 1, 1, 7, 2])
# Whether images are counted, other images added, and a ReLU applied.
BATCH_NORM_CASES = list(product([False, True], repeat=3))


def check_batch_norm(
    device: str, is_counted: bool, has_added: bool, has_relu: bool, dtype: torch.dtype = torch.float32
) -> None:  # fmt: skip
    """Output, gradients and running statistics are those of copies, for channels whose means are far from 0."""
    generator = torch.Generator().manual_seed(0)
    n_channels = 40  # more than a block, and no multiple of it
    side = 9 if device == "cpu" else 80  # several blocks a program
    full, layer = nn.BatchNorm2d(n_channels).double(), CountedBatchNorm2d(n_channels).to(device)
    nn.init.uniform_(full.weight, 0.5, 2, generator)
    nn.init.uniform_(full.bias, -1, 1, generator)
    layer.load_state_dict(full.state_dict())
    copies = torch.arange(6).repeat_interleave(COUNTS if is_counted else 1)
    if is_counted:
        layer.counts = Counts((COUNTS / COUNTS.sum()).unsqueeze(1).to(device), int(COUNTS.sum()))
    middle = torch.linspace(-30, 30, n_channels).view(-1, 1, 1)
    for spread in (1.0, 3.0):
        x, added = (
            torch.randn(6, n_channels, side, side + 1, generator=generator).to(dtype).double() for _ in range(2)
        )
        x = (spread * x + middle).to(dtype).double()
        inputs = [x.requires_grad_(), added.requires_grad_()]
        y = full(x[copies]) + (added[copies] if has_added else 0)
        upstream = torch.randn(x.shape, generator=generator)[copies] * (y.abs() > 1e-4)  # rounding may turn its sign
        upstream = upstream.to(dtype).double()
        y = relu(y) if has_relu else y
        expected = _gradients(y, upstream, [*inputs[: 1 + has_added], full.weight, full.bias])
        ours = [t.detach().to(device, dtype).contiguous(memory_format=torch.channels_last) for t in inputs]
        ours = [t.requires_grad_() for t in ours]
        z = batch_norm(layer, ours[0], ours[1] if has_added else None, has_relu)[copies.to(device)]
        assert z.dtype is dtype
        leaves = [*ours[: 1 + has_added], layer.weight, layer.bias]
        found = _gradients(z, upstream.to(device, dtype), leaves)
        tolerance = 2e-5 if dtype is torch.float32 else 2e-2
        _compare(z, y, tolerance)
        for a, b in zip(found, expected, strict=True):
            _compare(a, b, tolerance)
        for name in ("running_mean", "running_var"):
            _compare(getattr(layer, name), getattr(full, name), 1e-5)
        assert torch.equal(layer.num_batches_tracked.cpu(), full.num_batches_tracked)  # type: ignore[union-attr, arg-type]


def check_batch_norm_of_constants(device: str) -> None:
    """A channel without variance gives the bias and finite gradients; NaN stays NaN."""
    layer = CountedBatchNorm2d(4).to(device)
    x = torch.full((2, 4, 3, 3), 1e4, device=device).contiguous(memory_format=torch.channels_last)
    x[1, 3, 0, 0] = torch.nan
    x.requires_grad_()
    y = batch_norm(layer, x, None, True)
    y.sum().backward()
    assert torch.equal(y[:, :3].detach().cpu(), torch.zeros(2, 3, 3, 3))
    assert y[:, 3].isnan().all()
    assert x.grad is not None
    assert x.grad[:, :3].isfinite().all()


def check_max_pool(device: str, height: int, width: int) -> None:
    """Values and gradients, also of equal entries, of which the first counts, and of NaN."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(-3, 3, (3, 70, height, width), generator=generator).float()
    x[0, 0, 1, 2] = torch.nan
    results = []
    for place in ("cpu", device):
        leaf = x.to(place).contiguous(memory_format=torch.channels_last).requires_grad_()
        y = max_pool2d(leaf, 3, 2, 1) if not results else max_pool(leaf)
        upstream = torch.linspace(1, 2, y.numel()).view(y.shape).to(place)
        results.append([y.detach().cpu(), *(g.cpu() for g in _gradients(y, upstream, [leaf]))])
    for expected, ours in zip(*results, strict=True):
        torch.testing.assert_close(ours, expected, equal_nan=True)


def _gradients(y: Tensor, upstream: Tensor, leaves: list[Tensor]) -> tuple[Tensor, ...]:
    return torch.autograd.grad(y, leaves, upstream)


def _compare(ours: Tensor, expected: Tensor, tolerance: float) -> None:
    assert ours.shape == expected.shape
    assert (ours.double().cpu() - expected).abs().max() <= tolerance * expected.abs().max()
