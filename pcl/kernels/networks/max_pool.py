"""The pooling after a ResNet's first layer, 3 x 3 with stride 2, for images that are channels last.

Backward, each pixel takes the gradients of the up to four windows in which it is the largest.

Axes: N images, C channels; a row is a pixel of an image.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_ROWS = 64  # of a block
_CHANNELS = 64


@triton.jit
def _block(n_rows, n_channels, ROWS: tl.constexpr, CHANNELS: tl.constexpr):
    """Return the rows and the channels of this program, and which of them there are."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    return row, channel, row < n_rows, channel < n_channels


@triton.jit
def _pool_kernel(
    x_ptr, y_ptr, place_ptr, n_rows, n_channels, height, width, out_height, out_width,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row, channel, is_row, is_channel = _block(n_rows, n_channels, ROWS, CHANNELS)
    image, out_i, out_j = row // (out_height * out_width), row // out_width % out_height, row % out_width
    largest = tl.full([ROWS, CHANNELS], -float("inf"), tl.float32)
    place = tl.zeros([ROWS, CHANNELS], tl.int32)
    for di in tl.static_range(3):
        for dj in tl.static_range(3):
            i, j = 2 * out_i - 1 + di, 2 * out_j - 1 + dj
            is_inside = is_row & (i >= 0) & (i < height) & (j >= 0) & (j < width)
            pixel = ((image * height + i) * width + j).to(tl.int64)
            x = tl.load(
                x_ptr + pixel[:, None] * n_channels + channel[None, :],
                mask=is_inside[:, None] & is_channel[None, :], other=-float("inf"),
            ).to(tl.float32)  # fmt: skip
            is_larger = (x > largest) | (x != x)  # noqa: PLR0124  NaN wins, as in torch
            place = tl.where(is_larger, 3 * di + dj, place)
            largest = tl.where(is_larger, x, largest)
    at = row.to(tl.int64)[:, None] * n_channels + channel[None, :]
    inside = is_row[:, None] & is_channel[None, :]
    tl.store(y_ptr + at, largest, mask=inside)
    tl.store(place_ptr + at, place.to(tl.uint8), mask=inside)


@triton.jit
def _pool_gradient_kernel(
    dy_ptr, place_ptr, dx_ptr, n_rows, n_channels, height, width, out_height, out_width,
    ROWS: tl.constexpr, CHANNELS: tl.constexpr,
):  # fmt: skip
    row, channel, is_row, is_channel = _block(n_rows, n_channels, ROWS, CHANNELS)
    image, i, j = row // (height * width), row // width % height, row % width
    dx = tl.zeros([ROWS, CHANNELS], tl.float32)
    for di in tl.static_range(2):
        for dj in tl.static_range(2):
            out_i, out_j = (i + 1) // 2 - di, (j + 1) // 2 - dj
            in_i, in_j = i + 1 - 2 * out_i, j + 1 - 2 * out_j  # this pixel's place in that window
            is_inside = is_row & (out_i >= 0) & (out_i < out_height) & (out_j >= 0) & (out_j < out_width)
            is_inside = is_inside & (in_i < 3) & (in_j < 3)
            window = ((image * out_height + out_i) * out_width + out_j).to(tl.int64)
            at = window[:, None] * n_channels + channel[None, :]
            inside = is_inside[:, None] & is_channel[None, :]
            place = tl.load(place_ptr + at, mask=inside, other=255).to(tl.int32)
            dy = tl.load(dy_ptr + at, mask=inside, other=0.0).to(tl.float32)
            dx += tl.where(place == (3 * in_i + in_j)[:, None], dy, 0.0)
    at = row.to(tl.int64)[:, None] * n_channels + channel[None, :]
    tl.store(dx_ptr + at, dx, mask=is_row[:, None] & is_channel[None, :])


def _empty(like: Tensor, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def _grid(n_rows: int, n_channels: int) -> tuple[int, int]:
    return triton.cdiv(n_rows, _ROWS), triton.cdiv(n_channels, _CHANNELS)


class _MaxPool(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last)
        n_images, n_channels, height, width = x.shape
        out_height, out_width = (height + 1) // 2, (width + 1) // 2
        y = _empty(x, n_images, n_channels, out_height, out_width)
        place = torch.empty_like(y, dtype=torch.uint8)
        n_rows = n_images * out_height * out_width
        _pool_kernel[_grid(n_rows, n_channels)](
            x, y, place, n_rows, n_channels, height, width, out_height, out_width, ROWS=_ROWS, CHANNELS=_CHANNELS
        )
        ctx.save_for_backward(place)
        ctx.size = height, width
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> Tensor:
        (place,) = ctx.saved_tensors
        dy = dy.contiguous(memory_format=torch.channels_last)
        n_images, n_channels, out_height, out_width = dy.shape
        height, width = ctx.size
        dx = _empty(dy, n_images, n_channels, height, width)
        n_rows = n_images * height * width
        _pool_gradient_kernel[_grid(n_rows, n_channels)](
            dy, place, dx, n_rows, n_channels, height, width, out_height, out_width, ROWS=_ROWS, CHANNELS=_CHANNELS
        )
        return dx


def max_pool(x: Tensor) -> Tensor:
    """Return images (N, C, H, W) pooled by 3 x 3 windows with stride 2 and padding 1."""
    result: Tensor = _MaxPool.apply(x)  # type: ignore[no-untyped-call]
    return result
