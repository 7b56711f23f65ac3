"""The kernels of `pcl.kernels.networks.wide_mlp`.

Axes: M rows.
"""

import triton
import triton.language as tl

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_SLOPE = tl.constexpr(0.01)  # of torch's leaky ReLU
_LARGEST = tl.constexpr(65504.0)  # number in half precision


@triton.jit
def pack_weights_kernel(w_ptr, layout_ptr, packed_ptr, BLOCK: tl.constexpr):
    """Store weights in half precision, rows and columns padded with zeros."""
    layer, run = tl.program_id(1), tl.program_id(2).to(tl.int64)
    sizes = layout_ptr + 6 * layer
    n_in, n_out = tl.load(sizes).to(tl.int32), tl.load(sizes + 1).to(tl.int32)
    rows, columns = tl.load(sizes + 2).to(tl.int32), tl.load(sizes + 3).to(tl.int32)
    w_at = tl.load(sizes + 4) + run * n_in * n_out  # offsets may exceed 2^31
    packed_at = tl.load(sizes + 5) + run * rows * columns
    entry = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = entry // columns, entry % columns
    is_weight = (row < n_in) & (column < n_out)
    w = tl.load(w_ptr + w_at + row * n_out + column, mask=is_weight, other=0.0)
    tl.store(packed_ptr + packed_at + entry, w, mask=row < rows)


@triton.jit
def _tile_of(n_rows, n_columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Return the rows and the columns of this program; neighbours share rows, which stay in the cache."""
    n_across = tl.cdiv(n_columns, COLUMNS)
    row = tl.program_id(0) // n_across * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % n_across * COLUMNS + tl.arange(0, COLUMNS)
    return row.to(tl.int64), column, row < n_rows, column < n_columns


@triton.jit
def layer_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, m, x_stride, n_out, w_stride, w_size, y_stride,
    N_STEPS: tl.constexpr, HAS_LEAKY: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compute Y = leaky(X W + b); the columns beyond n_out are zeros.

    Masks depend on strides, which are multiples of 16, where they can: vectors can then be loaded whole.
    """
    run = tl.program_id(1).to(tl.int64)
    row, column, is_row, is_column = _tile_of(m, y_stride, ROWS, COLUMNS)
    x_ptrs = x_ptr + (run * m + row[:, None]) * x_stride
    w_ptrs = w_ptr + run * w_size + column[None, :]
    y = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range(N_STEPS):
        k = step * STEP + tl.arange(0, STEP)
        is_k = k < x_stride
        x = tl.load(x_ptrs + k[None, :], mask=is_row[:, None] & is_k[None, :], other=0.0)
        w = tl.load(w_ptrs + k[:, None] * w_stride, mask=is_k[:, None] & (column < w_stride)[None, :], other=0.0)
        y = tl.dot(x.to(tl.float16), w, acc=y)
    y += tl.load(b_ptr + run * n_out + column, mask=column < n_out, other=0.0)[None, :]
    if HAS_LEAKY:
        y = tl.where(y < 0, _SLOPE * y, y)
    tl.store(
        y_ptr + (run * m + row[:, None]) * y_stride + column[None, :], y, mask=is_row[:, None] & is_column[None, :]
    )


@triton.jit
def scale_kernel(grad_ptr, scale_ptr, scaled_ptr, n_rows, n, stride, BLOCK: tl.constexpr):
    """Scale a run's gradient by a power of two so that its largest entry is between 1/2 and 1, and pad its rows."""
    run = tl.program_id(0).to(tl.int64)
    largest = tl.zeros([BLOCK], tl.float32)
    first = 0
    while first < n_rows * n:
        entry = first + tl.arange(0, BLOCK)
        grad = tl.load(grad_ptr + run * n_rows * n + entry, mask=entry < n_rows * n, other=0.0)
        largest = tl.maximum(largest, tl.abs(grad))
        first += BLOCK
    top = tl.max(largest, axis=0)
    is_scalable = (top > 1e-30) & (top < 1e30)  # else there is nothing to save: zeros, or numbers that are not finite
    scale = tl.exp2(-tl.ceil(tl.log2(tl.where(is_scalable, top, 1.0))))
    tl.store(scale_ptr + run, scale)
    first = 0
    while first < n_rows * stride:
        entry = first + tl.arange(0, BLOCK)
        row, column = entry // stride, entry % stride
        inside = (row < n_rows) & (column < n)
        grad = tl.load(grad_ptr + (run * n_rows + row) * n + column, mask=inside, other=0.0)
        tl.store(scaled_ptr + run * n_rows * stride + entry, grad * scale, mask=row < n_rows)
        first += BLOCK


@triton.jit
def inputs_kernel(
    delta_ptr, w_ptr, x_ptr, dx_ptr, m, x_stride, delta_stride, w_size,
    N_STEPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compute the gradient before the leaky ReLU whose outputs X are this layer's inputs."""
    run = tl.program_id(1).to(tl.int64)
    row, column, is_row, is_column = _tile_of(m, x_stride, ROWS, COLUMNS)
    delta_ptrs = delta_ptr + (run * m + row[:, None]) * delta_stride
    w_ptrs = w_ptr + run * w_size + column[None, :] * delta_stride
    dx = tl.zeros([ROWS, COLUMNS], tl.float32)
    for step in range(N_STEPS):
        k = step * STEP + tl.arange(0, STEP)
        is_k = k < delta_stride
        delta = tl.load(delta_ptrs + k[None, :], mask=is_row[:, None] & is_k[None, :], other=0.0)
        w = tl.load(w_ptrs + k[:, None], mask=is_k[:, None] & is_column[None, :], other=0.0)
        dx = tl.dot(delta, w, acc=dx)
    place = (run * m + row[:, None]) * x_stride + column[None, :]
    inside = is_row[:, None] & is_column[None, :]
    x = tl.load(x_ptr + place, mask=inside, other=0.0)
    dx = tl.where(x < 0, _SLOPE * dx, dx)
    dx = tl.where(dx > _LARGEST, _LARGEST, tl.where(dx < -_LARGEST, -_LARGEST, dx))  # NaN must stay NaN
    tl.store(dx_ptr + place, dx, mask=inside)


@triton.jit
def weights_kernel(
    x_ptr, delta_ptr, scale_ptr, dw_ptr, db_ptr, m, n_in, x_stride, n_out, delta_stride, per_split,
    N_STEPS: tl.constexpr, N_BIAS_STEPS: tl.constexpr, BIAS_STEP: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Compute a split's part of the gradients of W, and of b in the programs below the last row of W."""
    run, split = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    row, column, is_row, is_column = _tile_of(n_in, n_out, ROWS, COLUMNS)
    first = split * per_split
    last = tl.minimum(first + per_split, m)
    delta_ptrs = delta_ptr + run * m * delta_stride + column[None, :]
    is_delta = column < delta_stride
    unscale = 1.0 / tl.load(scale_ptr + run)
    place = split * tl.num_programs(1) + run
    if tl.program_id(0) < tl.cdiv(n_in, ROWS) * tl.cdiv(n_out, COLUMNS):
        x_ptrs = x_ptr + run * m * x_stride + row[:, None]
        dw = tl.zeros([ROWS, COLUMNS], tl.float32)
        for step in range(N_STEPS):
            k = first + step * STEP + tl.arange(0, STEP)
            mask = (row < x_stride)[:, None] & (k < last)[None, :]
            x = tl.load(x_ptrs + k[None, :] * x_stride, mask=mask, other=0.0)
            mask = (k < last)[:, None] & is_delta[None, :]
            delta = tl.load(delta_ptrs + k[:, None] * delta_stride, mask=mask, other=0.0)
            dw = tl.dot(x.to(tl.float16), delta, acc=dw)
        w_ptrs = dw_ptr + (place * n_in + row[:, None]) * n_out + column[None, :]
        tl.store(w_ptrs, dw * unscale, mask=is_row[:, None] & is_column[None, :])
    else:
        sums = tl.zeros([BIAS_STEP, COLUMNS], tl.float32)
        for step in range(N_BIAS_STEPS):
            k = first + step * BIAS_STEP + tl.arange(0, BIAS_STEP)
            mask = (k < last)[:, None] & is_delta[None, :]
            sums += tl.load(delta_ptrs + k[:, None] * delta_stride, mask=mask, other=0.0).to(tl.float32)
        tl.store(db_ptr + place * n_out + column, tl.sum(sums, axis=0) * unscale, mask=is_column)
