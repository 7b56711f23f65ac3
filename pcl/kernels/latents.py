"""Samples of von Mises-Fisher distributions as one kernel, for the data of a step; no gradients."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from pcl.kernels.curves import curves
from pcl.kernels.device_math import normals, polar, polynomial_at, words
from pcl.kernels.transport import TransportTable

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_TANGENT = tl.constexpr(8)
_COSINE = tl.constexpr(9)
_ROWS = 32


@triton.jit
def _kernel(mu_ptr, curve_ptr, seed_ptr, out_ptr, n, D: tl.constexpr, BD: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    d = tl.arange(0, BD)
    is_row, is_entry = row < n, (row < n)[:, None] & (d < D)[None, :]
    seed = tl.load(seed_ptr)
    step = tl.load(seed_ptr + 1)
    mu = tl.load(mu_ptr + row[:, None] * D + d[None, :], mask=is_entry, other=0.0)
    g0, g1, _, _ = words(seed, step, _TANGENT, row[:, None] * BD + d[None, :], row[:, None] * 0)
    noise, _ = normals(g0, g1)
    s0, s1, _, _ = words(seed, step, _COSINE, row, row * 0)
    t, _ = normals(s0, s1)
    cosine, sine = polar(polynomial_at(curve_ptr + row, n, t, is_row))
    along = tl.sum(noise * mu, axis=1)
    rest = tl.where(is_entry, noise - along[:, None] * mu, 0.0)
    length = tl.sqrt(tl.sum(rest * rest, axis=1))
    z = cosine[:, None] * mu + (sine / length)[:, None] * rest
    tl.store(out_ptr + row[:, None] * D + d[None, :], z, mask=is_entry)


def sample_latents(table: TransportTable, mu: Tensor, kappa: Tensor, seed_and_step: Tensor) -> Tensor:
    """Draw one sample of each vMF(mu, kappa), as a function of (seed, step): mu (..., D), kappa (...)."""
    mu = mu.contiguous()
    n, dim = kappa.numel(), mu.shape[-1]
    out = torch.empty_like(mu)
    block_d = triton.next_power_of_2(dim)
    grid = (triton.cdiv(n, _ROWS),)
    _kernel[grid](mu, curves(table, kappa), seed_and_step, out, n, D=dim, BD=block_d, ROWS=_ROWS)
    return out
