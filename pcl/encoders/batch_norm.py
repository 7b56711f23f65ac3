"""Batch norm for batches in which images occur many times, computed from each image once.

Axes: N different images, C channels, H rows, W columns.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm


class Counts(NamedTuple):
    """How often each image of a batch counts."""

    shares: Tensor  # (N, 1), float32, count of each image over that of all; 0 is possible
    total: int  # sum of all counts


class CountedBatchNorm2d(nn.BatchNorm2d):
    """nn.BatchNorm2d that can count an image several times.

    In training, inside `counting`, output, gradients and running statistics are those of a batch with that many copies
    of each image: copies share an output, and its gradient is the sum over copies. Otherwise it is torch's own layer.
    """

    counts: Counts | None = None  # set by `counting`
    measured: tuple[Tensor, Tensor] | None = None  # mean and unbiased variance of all copies, each (C,)
    # Computes this layer in training, optionally adds a second batch and applies a ReLU; updates running statistics.
    kernel: Callable[["CountedBatchNorm2d", Tensor, Tensor | None, bool], Tensor] | None = None

    def activated(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """Normalise a batch, add another one, and apply a ReLU."""
        if self.kernel is not None and self.training:
            return self.kernel(self, x, added, True)
        y = CountedBatchNorm2d.forward(self, x)  # a layer derived from this one may call `activated` in its own
        if added is not None:
            y += added
        return y.relu_()

    def forward(self, input: Tensor) -> Tensor:
        """Normalise a batch (N, C, H, W)."""
        if self.kernel is not None and self.training:
            return self.kernel(self, input, None, False)
        if self.counts is None or not self.training:
            return super().forward(input)
        apply: Callable[..., tuple[Tensor, Tensor, Tensor]] = _Counted.apply  # untyped in torch
        output, mean, variance = apply(input, self.weight, self.bias, self.counts.shares, self.eps)
        n = self.counts.total * input.shape[2] * input.shape[3]
        self.measured = mean, variance * (n / (n - 1))
        return output


@contextmanager
def counting(layers: Sequence[CountedBatchNorm2d], counts: Counts) -> Iterator[None]:
    """Count images in this context; the layers' running statistics are updated at its end, all at once."""
    for layer in layers:
        layer.counts = counts
    try:
        yield
        _track([layer for layer in layers if layer.measured is not None])
    finally:
        for layer in layers:
            layer.counts = layer.measured = None


@torch.no_grad()
def _track(layers: Sequence[CountedBatchNorm2d]) -> None:
    for momentum in dict.fromkeys(layer.momentum for layer in layers):
        alike = [layer for layer in layers if layer.momentum == momentum]
        for place, name in enumerate(("running_mean", "running_var")):
            found = [layer.measured[place] for layer in alike if layer.measured is not None]
            torch._foreach_lerp_([getattr(layer, name) for layer in alike], found, momentum)
        torch._foreach_add_([getattr(layer, "num_batches_tracked") for layer in alike], 1)  # noqa: B009  its type


def _moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return variances and means over the pixels of each image, (N, C), in float32 or better.

    Half precision is summed in float32 without a copy of x in it; E x^2 - (E x)^2 loses little to cancellation, as
    activations have means of the size of their deviations.
    """
    if x.dtype not in (torch.bfloat16, torch.float16):
        variances, means = torch.var_mean(x, (2, 3), correction=0)
        return variances, means
    means = x.mean((2, 3), dtype=torch.float32)
    norms = torch.linalg.vector_norm(x, dim=(2, 3), dtype=torch.float32)
    return (norms.square() / (x.shape[2] * x.shape[3])).sub_(means.square()).clamp_min_(0), means


class _Counted(torch.autograd.Function):
    """y = weight (x - m) / s + bias with m = sum_i w_i E x_i and s^2 = eps + sum_i w_i E (x_i - m)^2, E over pixels.

    The gradient in x is a dy - w_i a (sum dy + x' sum dy x') / (H W) with a = weight / s and x' = (x - m) / s; sums are
    over images and pixels. There are few kernels and none waits for the device, so that a CUDA graph can replay them.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, shares: Tensor, eps: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        variances, means = _moments(x)
        mean = (shares * means).sum(0)
        means -= mean
        variance = (shares * torch.addcmul(variances, means, means)).sum(0)
        ctx.save_for_backward(x, weight, shares, mean, variance)
        ctx.eps = eps
        ctx.mark_non_differentiable(mean, variance)
        ctx.set_materialize_grads(False)  # no zeros for these two
        return batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), mean, variance

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        x, weight, shares, mean, variance = ctx.saved_tensors
        dy = gradients[0]
        inverse = (variance + ctx.eps).rsqrt()
        _, of_weight, of_bias = torch.ops.aten.native_batch_norm_backward(
            dy, x, weight, mean, variance, mean, inverse, False, ctx.eps, [False, True, True]
        )
        scale = weight * inverse
        slope = scale * inverse * of_weight
        offset = torch.addcmul(scale * of_bias, slope, mean, value=-1)
        per_pixel = shares * (-1 / (x.shape[2] * x.shape[3]))
        offset, slope = ((per_pixel * part)[..., None, None] for part in (offset, slope))  # (N, C, 1, 1)
        through_statistics = torch.addcmul(offset, slope, x)
        of_x = torch.addcmul(through_statistics, scale[:, None, None], dy, out=torch.empty_like(x))
        return of_x, of_weight, of_bias, None, None
