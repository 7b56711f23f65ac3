"""A perceptron whose layers are hundreds of units wide, in half precision: a kernel a layer forward, two backward.

Half precision has ten bits of mantissa, as TF32 has, which the fast path uses elsewhere; sums are in float32. Its
smallest number is 6e-8, so gradients are scaled by a power of two that makes the largest about 1. The gradients of
weights are computed on another stream than those of inputs.

Axes: R runs, M rows.
"""

import contextlib
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.encoders import StackedMlp
from pcl.encoders.mlp import flattened
from pcl.kernels.networks.wide_products import (
    inputs_kernel,
    layer_kernel,
    pack_weights_kernel,
    scale_kernel,
    weights_kernel,
)

_PADDING = 16  # widths are multiples of it: rows then start where whole vectors can be loaded
_PACKED = 2048  # entries per program
_SCALED = 4096
_BIAS_STEP = 256
_ROWS_PER_SPLIT = 4096  # of the sum in a gradient of weights
_ENOUGH = 132  # programs, one for each multiprocessor of a large GPU


class Tile(NamedTuple):
    """A program's part of a product, and how the compiler arranges its work."""

    rows: int
    columns: int
    step: int  # along the sum
    num_warps: int
    num_stages: int

    @property
    def options(self) -> dict[str, int]:
        """Return the arguments of a kernel."""
        return {
            "ROWS": self.rows, "COLUMNS": self.columns, "STEP": self.step, "num_warps": self.num_warps,
            "num_stages": self.num_stages,
        }  # fmt: skip


class WideMlp:
    """A `StackedMlp` computed by fused kernels, with gradients in its parameters alone.

    The weights are moved into a flat buffer, and become views of it.
    """

    def __init__(self, net: StackedMlp) -> None:
        self.net = net
        weights = list(net.weights)
        self.n_runs = len(weights[0])
        self.flat_weights = flattened(weights)
        self.sizes = [(w.shape[1], w.shape[2]) for w in weights]
        self.padded = [(_padded(n_in), _padded(n_out)) for n_in, n_out in self.sizes]
        n_packed = [self.n_runs * rows * columns for rows, columns in self.padded]
        w_at, packed_at = ([0, *accumulate(n)][:-1] for n in ([w.numel() for w in weights], n_packed))
        self._packed = weights[0].new_empty(sum(n_packed), dtype=torch.float16)
        parts = self._packed.split(n_packed)
        self.packed = [part.view(self.n_runs, *size) for part, size in zip(parts, self.padded, strict=True)]
        layout = [[*s, *p, w, at] for s, p, w, at in zip(self.sizes, self.padded, w_at, packed_at, strict=True)]
        self._layout = torch.tensor(layout, device=weights[0].device)
        self.aside = torch.cuda.Stream(weights[0].device) if weights[0].is_cuda else None
        self.pack()

    def pack(self) -> None:
        """Take over the weights' current values."""
        n_blocks = triton.cdiv(max(rows * columns for rows, columns in self.padded), _PACKED)
        grid = (n_blocks, len(self.sizes), self.n_runs)
        pack_weights_kernel[grid](self.flat_weights, self._layout, self._packed, BLOCK=_PACKED)

    def __call__(self, x: Tensor) -> Tensor:
        """Map inputs (R, M, n_in) to outputs (R, M, n_out), and let gradients reach the parameters."""
        result: Tensor = _WideMlp.apply(x, self, *self.net.weights, *self.net.biases)  # type: ignore[no-untyped-call]
        return result

    @torch.no_grad()
    def frozen(self, x: Tensor) -> Tensor:
        """Map inputs (R, M, n_in) to outputs (R, M, n_out) by the weights packed last."""
        x = x.contiguous()
        for i in range(len(self.sizes)):
            x = self.layer(i, x)
        return x

    def layer(self, i: int, x: Tensor, tile: Tile | None = None) -> Tensor:
        """Return a layer's outputs: the last ones' in float32, others' in half precision and padded."""
        (n_runs, m, x_stride), (_, n_out), (_, w_stride) = x.shape, self.sizes[i], self.padded[i]
        is_last = i == len(self.sizes) - 1
        y = x.new_empty(n_runs, m, n_out if is_last else w_stride, dtype=torch.float32 if is_last else torch.float16)
        tile = tile or _tile(n_runs, m, n_out)
        layer_kernel[(*_grid(tile, m, y.shape[2]), n_runs)](
            x, self.packed[i], self.net.biases[i], y, m, x_stride, n_out, w_stride, self.packed[i][0].numel(),
            y.shape[2], N_STEPS=triton.cdiv(x_stride, tile.step), HAS_LEAKY=not is_last, **tile.options,
        )  # fmt: skip
        return y

    def inputs_gradient(self, i: int, delta: Tensor, x: Tensor, tile: Tile | None = None) -> Tensor:
        """Return the gradient before the leaky ReLU that gave a layer's inputs x; `delta` is that in its outputs."""
        n_runs, m, x_stride = x.shape
        dx = torch.empty_like(x)
        tile = tile or _tile(n_runs, m, x_stride)
        inputs_kernel[(*_grid(tile, m, x_stride), n_runs)](
            delta, self.packed[i], x, dx, m, x_stride, delta.shape[2], self.packed[i][0].numel(),
            N_STEPS=triton.cdiv(delta.shape[2], tile.step), **tile.options,
        )  # fmt: skip
        return dx

    def weights_gradient(
        self, i: int, x: Tensor, delta: Tensor, scale: Tensor, tile: Tile | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the gradients of a layer's weights and biases."""
        (n_runs, m, x_stride), (n_in, n_out) = x.shape, self.sizes[i]
        n_splits = triton.cdiv(m, _ROWS_PER_SPLIT)
        per_split = triton.cdiv(m, n_splits)
        dw = x.new_empty(n_splits, n_runs, n_in, n_out, dtype=torch.float32)
        db = x.new_empty(n_splits, n_runs, 1, n_out, dtype=torch.float32)
        tile = tile or _tile(n_runs, n_in, n_out)
        n_programs = (triton.cdiv(n_in, tile.rows) + 1) * triton.cdiv(n_out, tile.columns)
        weights_kernel[(n_programs, n_runs, n_splits)](
            x, delta, scale, dw, db, m, n_in, x_stride, n_out, delta.shape[2], per_split,
            N_STEPS=triton.cdiv(per_split, tile.step), N_BIAS_STEPS=triton.cdiv(per_split, _BIAS_STEP),
            BIAS_STEP=_BIAS_STEP, **tile.options,
        )  # fmt: skip
        return (dw[0], db[0]) if n_splits == 1 else (dw.sum(0), db.sum(0))


class _WideMlp(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mlp: WideMlp, *parameters: Tensor) -> Tensor:
        mlp.pack()
        acts = [x.contiguous()]
        for i in range(len(mlp.sizes)):
            acts.append(mlp.layer(i, acts[-1]))
        ctx.save_for_backward(*acts[:-1])
        ctx.mlp = mlp
        return acts[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        acts, mlp = ctx.saved_tensors, ctx.mlp
        grad = grad.contiguous()
        n_runs, m, n = grad.shape
        scale, delta = grad.new_empty(n_runs), acts[0].new_empty(n_runs, m, _padded(n), dtype=torch.float16)
        scale_kernel[(n_runs,)](grad, scale, delta, m, n, _padded(n), BLOCK=_SCALED, num_warps=16)
        deltas = [delta]  # from the last layer to the first; they live until both streams are done
        gradients: list[tuple[Tensor, Tensor]] = []
        for i in reversed(range(len(acts))):
            with _after_current(mlp.aside):
                gradients.append(mlp.weights_gradient(i, acts[i], deltas[-1], scale))
            if i:
                deltas.append(mlp.inputs_gradient(i, deltas[-1], acts[i]))
        if mlp.aside is not None:
            torch.cuda.current_stream(grad.device).wait_stream(mlp.aside)
        d_weights, d_biases = zip(*reversed(gradients), strict=True)
        return None, None, *d_weights, *d_biases


def _after_current(stream: torch.cuda.Stream | None) -> contextlib.AbstractContextManager[None]:
    """Return a context for this stream, in which everything waits for what the current one has been given so far."""
    if stream is None:
        return contextlib.nullcontext()
    stream.wait_stream(torch.cuda.current_stream(stream.device))
    return torch.cuda.stream(stream)


def _padded(width: int) -> int:
    return -(-width // _PADDING) * _PADDING


def _tile(n_runs: int, n_rows: int, n_columns: int) -> Tile:
    """Return large tiles where there are enough of them for all of a GPU."""
    n_large = n_runs * triton.cdiv(n_rows, 128) * triton.cdiv(n_columns, 128)
    return Tile(128, 128, 64, 4, 3) if n_large >= _ENOUGH else Tile(64, 64, 128, 4, 3)


def _grid(tile: Tile, n_rows: int, n_columns: int) -> tuple[int]:
    return (triton.cdiv(n_rows, tile.rows) * triton.cdiv(n_columns, tile.columns),)
