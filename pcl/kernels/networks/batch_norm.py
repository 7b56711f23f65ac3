"""Batch norm with what follows it, an addition and a ReLU: two kernels forward and two backward.

The first of each sums over the pixels that a program has, the second adds up these sums and goes over the pixels again.
Where `shares` are given, images count as often as they say, as in `pcl.encoders.batch_norm`.

Axes: N images, C channels; a row is a pixel of an image, as memory is channels last.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.encoders.batch_norm import CountedBatchNorm2d

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_ROWS = 256  # of a block
_CHANNELS = 32
_MOST_SUMS = 128  # programs that sum over the rows of a channel; all later programs add up their sums
_MOST_WRITERS = 256


@triton.jit
def _channels(n_channels, CHANNELS: tl.constexpr):
    """Return the program's channels, and which of them there are."""
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    return channel, channel < n_channels


@triton.jit
def _block(first, n_rows, n_channels, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Return the rows of a block, the places of its entries, and which of them there are."""
    row = first + tl.arange(0, ROWS)
    channel, is_channel = _channels(n_channels, CHANNELS)
    place = row.to(tl.int64)[:, None] * n_channels + channel[None, :]  # may exceed 2^31
    return row, place, (row < n_rows)[:, None] & is_channel[None, :]


@triton.jit
def _normalizer(weight_ptr, bias_ptr, mean_ptr, inverse_ptr, channel, is_channel):
    """Return mean, inverse deviation, scale and bias of channels: y = (x - mean) scale + bias."""
    mean = tl.load(mean_ptr + channel, mask=is_channel, other=0.0)
    inverse = tl.load(inverse_ptr + channel, mask=is_channel, other=0.0)
    scale = inverse * tl.load(weight_ptr + channel, mask=is_channel, other=0.0)
    return mean, inverse, scale, tl.load(bias_ptr + channel, mask=is_channel, other=0.0)


@triton.jit
def _summed(sums_ptr, which: tl.constexpr, n_sums, n_channels, channel, N_SUMS: tl.constexpr):
    """Add up the sums of all programs, (CHANNELS,)."""
    program = tl.arange(0, N_SUMS)
    inside = (program < n_sums)[:, None] & (channel < n_channels)[None, :]
    at = (2 * program[:, None] + which) * n_channels + channel[None, :]
    return tl.sum(tl.load(sums_ptr + at, mask=inside, other=0.0), axis=0)


@triton.jit
def _moments_kernel(
    x_ptr, shares_ptr, sums_ptr, n_rows, n_channels, n_pixels, per_program,
    IS_COUNTED: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    """Sum x and x^2 around the first pixel: around 0, the variance would be the difference of large sums."""
    channel, is_channel = _channels(n_channels, CHANNELS)
    centre = tl.load(x_ptr + channel, mask=is_channel, other=0.0).to(tl.float32)
    total = tl.zeros([ROWS, CHANNELS], tl.float32)
    squares = tl.zeros([ROWS, CHANNELS], tl.float32)
    first = tl.program_id(0) * per_program
    last = first + per_program
    while first < last:
        row, place, inside = _block(first, n_rows, n_channels, ROWS, CHANNELS)
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32) - centre[None, :]
        x = tl.where(inside, x, 0.0)
        weighted = x
        if IS_COUNTED:
            weighted *= tl.load(shares_ptr + row // n_pixels, mask=row < n_rows, other=0.0)[:, None]
        total += weighted
        squares += weighted * x
        first += ROWS
    at = sums_ptr + 2 * tl.program_id(0) * n_channels + channel
    tl.store(at, tl.sum(total, axis=0), mask=is_channel)
    tl.store(at + n_channels, tl.sum(squares, axis=0), mask=is_channel)


@triton.jit
def _normalize_kernel(
    x_ptr, added_ptr, weight_ptr, bias_ptr, sums_ptr,
    y_ptr, mean_ptr, inverse_ptr, running_mean_ptr, running_var_ptr, n_tracked_ptr,
    n_rows, n_channels, n_sums, per_program, norm, unbiased, momentum, eps,
    HAS_ADDED: tl.constexpr, HAS_RELU: tl.constexpr, N_SUMS: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel, is_channel = _channels(n_channels, CHANNELS)
    offset = _summed(sums_ptr, 0, n_sums, n_channels, channel, N_SUMS) * norm
    squares = _summed(sums_ptr, 1, n_sums, n_channels, channel, N_SUMS) * norm
    mean = tl.load(x_ptr + channel, mask=is_channel, other=0.0).to(tl.float32) + offset
    variance = squares - offset * offset
    variance = tl.where(variance < 0.0, 0.0, variance)  # NaN must stay NaN
    inverse = 1.0 / tl.sqrt(variance + eps)
    first = tl.program_id(0) * per_program
    if tl.program_id(0) == 0:
        tl.store(mean_ptr + channel, mean, mask=is_channel)
        tl.store(inverse_ptr + channel, inverse, mask=is_channel)
        old_mean = tl.load(running_mean_ptr + channel, mask=is_channel, other=0.0)
        old_var = tl.load(running_var_ptr + channel, mask=is_channel, other=0.0)
        tl.store(running_mean_ptr + channel, old_mean + momentum * (mean - old_mean), mask=is_channel)
        tl.store(running_var_ptr + channel, old_var + momentum * (variance * unbiased - old_var), mask=is_channel)
        if tl.program_id(1) == 0:
            tl.store(n_tracked_ptr, tl.load(n_tracked_ptr) + 1)
    scale = inverse * tl.load(weight_ptr + channel, mask=is_channel, other=0.0)
    bias = tl.load(bias_ptr + channel, mask=is_channel, other=0.0)
    last = first + per_program
    while first < last:
        _, place, inside = _block(first, n_rows, n_channels, ROWS, CHANNELS)
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        y = (x - mean[None, :]) * scale[None, :] + bias[None, :]
        if HAS_ADDED:
            y += tl.load(added_ptr + place, mask=inside, other=0.0).to(tl.float32)
        if HAS_RELU:
            y = tl.where(y < 0.0, 0.0, y)  # NaN must stay NaN
        tl.store(y_ptr + place, y, mask=inside)
        first += ROWS


@triton.jit
def _gradient_ahead(
    dy_ptr, y_ptr, x, place, inside, mean, scale, bias, HAS_ADDED: tl.constexpr, HAS_RELU: tl.constexpr
):
    """Return the gradient in the sum before the ReLU; without an addition, y follows from x."""
    dy = tl.load(dy_ptr + place, mask=inside, other=0.0).to(tl.float32)
    if HAS_RELU:
        if HAS_ADDED:
            y = tl.load(y_ptr + place, mask=inside, other=0.0).to(tl.float32)
        else:
            y = (x - mean[None, :]) * scale[None, :] + bias[None, :]
        dy = tl.where(y <= 0.0, 0.0, dy)
    return dy


@triton.jit
def _gradient_sums_kernel(
    dy_ptr, x_ptr, y_ptr, weight_ptr, bias_ptr, mean_ptr, inverse_ptr, sums_ptr, n_rows, n_channels, per_program,
    HAS_ADDED: tl.constexpr, HAS_RELU: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel, is_channel = _channels(n_channels, CHANNELS)
    mean, inverse, scale, bias = _normalizer(weight_ptr, bias_ptr, mean_ptr, inverse_ptr, channel, is_channel)
    of_bias = tl.zeros([ROWS, CHANNELS], tl.float32)
    of_weight = tl.zeros([ROWS, CHANNELS], tl.float32)
    first = tl.program_id(0) * per_program
    last = first + per_program
    while first < last:
        _, place, inside = _block(first, n_rows, n_channels, ROWS, CHANNELS)
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        dy = _gradient_ahead(dy_ptr, y_ptr, x, place, inside, mean, scale, bias, HAS_ADDED, HAS_RELU)
        of_bias += dy
        of_weight += dy * (x - mean[None, :]) * inverse[None, :]
        first += ROWS
    at = sums_ptr + 2 * tl.program_id(0) * n_channels + channel
    tl.store(at, tl.sum(of_bias, axis=0), mask=is_channel)
    tl.store(at + n_channels, tl.sum(of_weight, axis=0), mask=is_channel)


@triton.jit
def _gradient_kernel(
    dy_ptr, x_ptr, y_ptr, shares_ptr, weight_ptr, bias_ptr, mean_ptr, inverse_ptr, sums_ptr,
    dx_ptr, d_added_ptr, d_weight_ptr, d_bias_ptr, n_rows, n_channels, n_pixels, n_sums, per_program, norm,
    IS_COUNTED: tl.constexpr, HAS_ADDED: tl.constexpr, HAS_RELU: tl.constexpr,
    N_SUMS: tl.constexpr, ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    channel, is_channel = _channels(n_channels, CHANNELS)
    of_bias = _summed(sums_ptr, 0, n_sums, n_channels, channel, N_SUMS)
    of_weight = _summed(sums_ptr, 1, n_sums, n_channels, channel, N_SUMS)
    if tl.program_id(0) == 0:
        tl.store(d_bias_ptr + channel, of_bias, mask=is_channel)
        tl.store(d_weight_ptr + channel, of_weight, mask=is_channel)
    mean, inverse, scale, bias = _normalizer(weight_ptr, bias_ptr, mean_ptr, inverse_ptr, channel, is_channel)
    first = tl.program_id(0) * per_program
    last = first + per_program
    while first < last:
        row, place, inside = _block(first, n_rows, n_channels, ROWS, CHANNELS)
        x = tl.load(x_ptr + place, mask=inside, other=0.0).to(tl.float32)
        dy = _gradient_ahead(dy_ptr, y_ptr, x, place, inside, mean, scale, bias, HAS_ADDED, HAS_RELU)
        if HAS_ADDED:
            tl.store(d_added_ptr + place, dy, mask=inside)
        through_moments = of_bias[None, :] + (x - mean[None, :]) * inverse[None, :] * of_weight[None, :]
        if IS_COUNTED:
            through_moments *= tl.load(shares_ptr + row // n_pixels, mask=row < n_rows, other=0.0)[:, None]
        tl.store(dx_ptr + place, scale[None, :] * (dy - norm * through_moments), mask=inside)
        first += ROWS


def _programs(n_rows: int, most: int) -> tuple[int, int]:
    """Return how many programs share the rows, at most `most`, and how many rows each has, in whole blocks."""
    per_program = triton.cdiv(triton.cdiv(n_rows, most), _ROWS) * _ROWS
    return triton.cdiv(n_rows, per_program), per_program


class _BatchNorm(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, bias: Tensor, layer: CountedBatchNorm2d,
        has_relu: bool,
    ) -> Tensor:  # fmt: skip
        assert layer.running_mean is not None
        assert layer.num_batches_tracked is not None
        x = x.contiguous(memory_format=torch.channels_last)
        added = added if added is None else added.to(x.dtype).contiguous(memory_format=torch.channels_last)
        n_images, n_channels, height, width = x.shape
        n_pixels, n_rows = height * width, n_images * height * width
        shares = None if layer.counts is None else layer.counts.shares
        n_counted = (n_images if layer.counts is None else layer.counts.total) * n_pixels
        norm = 1 / (n_rows if shares is None else n_pixels)
        n_blocks = triton.cdiv(n_channels, _CHANNELS)
        n_sums, per_summing = _programs(n_rows, _MOST_SUMS)
        sums = weight.new_empty(n_sums, 2, n_channels)
        mean, inverse = weight.new_empty(2, n_channels)
        _moments_kernel[(n_sums, n_blocks)](
            x, shares, sums, n_rows, n_channels, n_pixels, per_summing,
            IS_COUNTED=shares is not None, ROWS=_ROWS, CHANNELS=_CHANNELS, num_warps=8,
        )  # fmt: skip
        y = torch.empty_like(x)
        n_writers, per_writer = _programs(n_rows, _MOST_WRITERS)
        _normalize_kernel[(n_writers, n_blocks)](
            x, added, weight, bias, sums,
            y, mean, inverse, layer.running_mean, layer.running_var, layer.num_batches_tracked,
            n_rows, n_channels, n_sums, per_writer, norm, n_counted / max(1, n_counted - 1), layer.momentum, layer.eps,
            HAS_ADDED=added is not None, HAS_RELU=has_relu, N_SUMS=triton.next_power_of_2(n_sums),
            ROWS=_ROWS, CHANNELS=_CHANNELS, num_warps=8,
        )  # fmt: skip
        ctx.save_for_backward(x, y if has_relu and added is not None else None, shares, weight, bias, mean, inverse)
        ctx.has_added, ctx.has_relu, ctx.norm = added is not None, has_relu, norm
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, y, shares, weight, bias, mean, inverse = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        n_images, n_channels, height, width = x.shape
        n_pixels, n_rows = height * width, n_images * height * width
        n_blocks = triton.cdiv(n_channels, _CHANNELS)
        n_sums, per_summing = _programs(n_rows, _MOST_SUMS)
        sums = weight.new_empty(n_sums, 2, n_channels)
        _gradient_sums_kernel[(n_sums, n_blocks)](
            dy, x, y, weight, bias, mean, inverse, sums, n_rows, n_channels, per_summing,
            HAS_ADDED=ctx.has_added, HAS_RELU=ctx.has_relu, ROWS=_ROWS, CHANNELS=_CHANNELS, num_warps=8,
        )  # fmt: skip
        dx, d_weight, d_bias = torch.empty_like(x), torch.empty_like(weight), torch.empty_like(bias)
        d_added = torch.empty_like(x) if ctx.has_added else None
        n_writers, per_writer = _programs(n_rows, _MOST_WRITERS)
        _gradient_kernel[(n_writers, n_blocks)](
            dy, x, y, shares, weight, bias, mean, inverse, sums, dx, d_added, d_weight, d_bias,
            n_rows, n_channels, n_pixels, n_sums, per_writer, ctx.norm,
            IS_COUNTED=shares is not None, HAS_ADDED=ctx.has_added, HAS_RELU=ctx.has_relu,
            N_SUMS=triton.next_power_of_2(n_sums), ROWS=_ROWS, CHANNELS=_CHANNELS, num_warps=8,
        )  # fmt: skip
        return dx, d_added, d_weight, d_bias, None, None


def batch_norm(layer: CountedBatchNorm2d, x: Tensor, added: Tensor | None, has_relu: bool) -> Tensor:
    """Return what `layer` returns in training, plus `added`, through a ReLU; update its running statistics."""
    result: Tensor = _BatchNorm.apply(x, added, layer.weight, layer.bias, layer, has_relu)  # type: ignore[no-untyped-call]
    return result
