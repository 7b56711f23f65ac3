"""A perceptron with layers of at most 64 units, forward and backward in one kernel each.

The released kappa network is so narrow (10 and 50 units) that its sixteen small products cost far more in launches and
memory traffic than in arithmetic. Here a block of rows passes all layers in registers. A scale in the thousands follows
this network, so the forward products are as accurate as float32's: both factors are split into two half-precision
numbers, and three of the four products are added up. The backward products are in TF32, as elsewhere on the fast path.

Axes: R runs, M rows, L layers.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.encoders import StackedMlp
from pcl.encoders.mlp import flattened

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

WIDTH = 64
_WIDTH = tl.constexpr(WIDTH)
_ROWS = 64
_SLOPE = tl.constexpr(0.01)  # of torch's leaky ReLU


@triton.jit
def _pack_kernel(w_ptr, b_ptr, layout_ptr, high_ptr, low_ptr, bias_ptr, L: tl.constexpr):
    """Store weights as sums of two half-precision numbers, and biases, all padded with zeros to `WIDTH` units."""
    layer, run = tl.program_id(0), tl.program_id(1)
    n_in, n_out = tl.load(layout_ptr + 4 * layer), tl.load(layout_ptr + 4 * layer + 1)
    w_at, b_at = tl.load(layout_ptr + 4 * layer + 2), tl.load(layout_ptr + 4 * layer + 3)
    row, column = tl.arange(0, _WIDTH), tl.arange(0, _WIDTH)
    inside = (row < n_in)[:, None] & (column < n_out)[None, :]
    w = tl.load(w_ptr + w_at + (run * n_in + row[:, None]) * n_out + column[None, :], mask=inside, other=0.0)
    high = w.to(tl.float16)
    at = ((run * L + layer) * _WIDTH + row[:, None]) * _WIDTH + column[None, :]
    tl.store(high_ptr + at, high)
    tl.store(low_ptr + at, (w - high.to(tl.float32)).to(tl.float16))
    bias = tl.load(b_ptr + b_at + run * n_out + column, mask=column < n_out, other=0.0)
    tl.store(bias_ptr + (run * L + layer) * _WIDTH + column, bias)


@triton.jit
def _forward_kernel(
    x_ptr, high_ptr, low_ptr, bias_ptr, acts_ptr, y_ptr, m, n_runs, dim_x, L: tl.constexpr, BM: tl.constexpr
):
    run = tl.program_id(1)
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    unit = tl.arange(0, _WIDTH)
    is_row = row < m
    x = tl.load(
        x_ptr + (run * m + row[:, None]) * dim_x + unit[None, :],
        mask=is_row[:, None] & (unit < dim_x)[None, :],
        other=0.0,
    )
    entry = unit[:, None] * _WIDTH + unit[None, :]
    for layer in range(L):
        at = run * L + layer
        high = tl.load(high_ptr + at * _WIDTH * _WIDTH + entry)
        low = tl.load(low_ptr + at * _WIDTH * _WIDTH + entry)
        x_high = x.to(tl.float16)
        x_low = (x - x_high.to(tl.float32)).to(tl.float16)
        tl.store(
            acts_ptr + ((layer * n_runs + run) * m + row[:, None]) * _WIDTH + unit[None, :],
            x_high,
            mask=is_row[:, None],
        )
        x = tl.dot(x_low, high) + tl.dot(x_high, low)
        x = tl.dot(x_high, high, acc=x) + tl.load(bias_ptr + at * _WIDTH + unit)[None, :]
        x = tl.where((x < 0) & (layer < L - 1), _SLOPE * x, x)
    y = tl.sum(tl.where(unit[None, :] == 0, x, 0.0), axis=1)
    tl.store(y_ptr + run * m + row, y, mask=is_row)


@triton.jit
def _backward_kernel(
    grad_ptr, high_ptr, low_ptr, acts_ptr, d_w_ptr, d_b_ptr, layout_ptr, m, n_runs, w_size, b_size,
    L: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    block, run = tl.program_id(0), tl.program_id(1)
    row = block * BM + tl.arange(0, BM)
    unit = tl.arange(0, _WIDTH)
    is_row = row < m
    grad = tl.load(grad_ptr + run * m + row, mask=is_row, other=0.0)
    delta = tl.where(unit[None, :] == 0, grad[:, None], 0.0)
    entry = unit[:, None] * _WIDTH + unit[None, :]
    for i in range(L):
        layer = L - 1 - i
        n_in, n_out = tl.load(layout_ptr + 4 * layer), tl.load(layout_ptr + 4 * layer + 1)
        w_at, b_at = tl.load(layout_ptr + 4 * layer + 2), tl.load(layout_ptr + 4 * layer + 3)
        at = (run * L + layer) * _WIDTH * _WIDTH + entry
        w = tl.load(high_ptr + at).to(tl.float32) + tl.load(low_ptr + at).to(tl.float32)
        x = tl.load(
            acts_ptr + ((layer * n_runs + run) * m + row[:, None]) * _WIDTH + unit[None, :],
            mask=is_row[:, None], other=0.0,
        ).to(tl.float32)  # fmt: skip
        d_w = tl.dot(tl.trans(x), delta)
        inside = (unit < n_in)[:, None] & (unit < n_out)[None, :]
        out = block * w_size + w_at + (run * n_in + unit[:, None]) * n_out + unit[None, :]
        tl.store(d_w_ptr + out, d_w, mask=inside)
        tl.store(d_b_ptr + block * b_size + b_at + run * n_out + unit, tl.sum(delta, axis=0), mask=unit < n_out)
        delta = tl.dot(delta, tl.trans(w))
        delta = tl.where(x < 0, _SLOPE * delta, delta)


class NarrowMlp:
    """A `StackedMlp` that `fits`, computed by fused kernels, with gradients in its parameters alone.

    The parameters are moved into two flat buffers, of weights and of biases, and become views of them.
    """

    def __init__(self, net: StackedMlp) -> None:
        self.net = net
        weights, biases = list(net.weights), list(net.biases)
        sizes = [(w.shape[1], w.shape[2]) for w in weights]
        self.flat_weights, self.flat_biases = flattened(weights), flattened(biases)
        layout = [[*size, w, b] for size, w, b in zip(sizes, _starts(weights), _starts(biases), strict=True)]
        self.layout = torch.tensor(layout, dtype=torch.int32, device=weights[0].device)

    def __call__(self, x: Tensor) -> Tensor:
        """Map inputs (R, M, n_in) to outputs (R, M, 1)."""
        result: Tensor = _NarrowMlp.apply(x, self, *self.net.weights, *self.net.biases)  # type: ignore[no-untyped-call]
        return result


def fits(net: StackedMlp) -> bool:
    """Return whether all layers are at most `WIDTH` wide, inputs included, and the output is one number."""
    return all(max(w.shape[1:]) <= WIDTH for w in net.weights) and net.weights[-1].shape[2] == 1


class _NarrowMlp(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mlp: NarrowMlp, *parameters: Tensor) -> Tensor:
        x = x.contiguous()
        n_runs, m, dim_x = x.shape
        n_layers = len(mlp.net.weights)
        acts = x.new_empty(n_layers, n_runs, m, WIDTH, dtype=torch.float16)
        y = x.new_empty(n_runs, m, 1)
        high, low = acts.new_empty(2, n_runs, n_layers, WIDTH, WIDTH)
        bias = x.new_empty(n_runs, n_layers, WIDTH)
        _pack_kernel[(n_layers, n_runs)](mlp.flat_weights, mlp.flat_biases, mlp.layout, high, low, bias, L=n_layers)
        _forward_kernel[(triton.cdiv(m, _ROWS), n_runs)](
            x, high, low, bias, acts, y, m, n_runs, dim_x, L=n_layers, BM=_ROWS, num_warps=4, num_stages=2
        )
        ctx.save_for_backward(acts, high, low)
        ctx.mlp, ctx.shapes = mlp, [p.shape for p in parameters]
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        acts, high, low = ctx.saved_tensors
        mlp, (n_layers, n_runs, m, _) = ctx.mlp, acts.shape
        n_blocks = triton.cdiv(m, _ROWS)
        d_w, d_b = (grad.new_empty(n_blocks, flat.numel()) for flat in (mlp.flat_weights, mlp.flat_biases))
        _backward_kernel[(n_blocks, n_runs)](
            grad.contiguous(), high, low, acts, d_w, d_b, mlp.layout, m, n_runs, d_w.shape[1], d_b.shape[1],
            L=n_layers, BM=_ROWS, num_warps=4, num_stages=2,
        )  # fmt: skip
        parts = [*_split(d_w.sum(0), ctx.shapes[:n_layers]), *_split(d_b.sum(0), ctx.shapes[n_layers:])]
        return None, None, *parts


def _starts(parameters: Sequence[torch.nn.Parameter]) -> list[int]:
    """Return the offset of each parameter in the flat buffer."""
    return [0, *accumulate(parameter.numel() for parameter in parameters)][:-1]


def _split(flat: Tensor, shapes: Sequence[torch.Size]) -> list[Tensor]:
    return [part.view(shape) for part, shape in zip(flat.split([s.numel() for s in shapes]), shapes, strict=True)]
