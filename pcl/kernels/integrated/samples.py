"""Samples of vMFs, those of `VonMisesFisher.rsample` for the same standard normals and the exact law, with gradients.

Axes: R runs, K samples, B anchors, D dim; a program has BA anchors of all runs, numbered r B + b.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.distributions import VonMisesFisher
from pcl.distributions.cosine import CosineTable, cosine_table
from pcl.distributions.cosine_spline import R_CELLS, T_CELLS, T_MAX

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_R_CELLS, _T_CELLS, _T_MAX = tl.constexpr(R_CELLS), tl.constexpr(T_CELLS), tl.constexpr(T_MAX)


@triton.jit
def _polar(t, kappa, spline_ptr, scale):
    """Compute `CosineTable.polar`: return cosine, sine, and the derivative of log tan(theta/2) in kappa."""
    at_t = tl.minimum(tl.maximum(t * (_T_CELLS / (2 * _T_MAX)) + _T_CELLS / 2, 0.0), _T_CELLS * 1.0)
    cell_t = tl.minimum(tl.maximum(at_t.to(tl.int32), 0), _T_CELLS - 1)
    x = at_t - cell_t
    at_r = (1 - 1 / (1 + kappa / scale)) * _R_CELLS
    cell_r = tl.minimum(tl.maximum(at_r.to(tl.int32), 0), _R_CELLS - 1)
    f = at_r - cell_r
    g = 1 - f
    value = t * 0.0
    slope = t * 0.0
    for i in tl.static_range(4):
        row = spline_ptr + (cell_r + i) * _T_CELLS + cell_t
        cubic = t * 0.0
        for power in tl.static_range(3, -1, -1):
            cubic = cubic * x + tl.load(row + power * (_R_CELLS + 3) * _T_CELLS)
        if i == 0:
            weight = g * g * g / 6
            weight_slope = -g * g / 2
        elif i == 1:
            weight = 2 / 3 - f * f * (1 - f / 2)
            weight_slope = f * (1.5 * f - 2)
        elif i == 2:
            weight = 2 / 3 - g * g * (1 - g / 2)
            weight_slope = -g * (1.5 * g - 2)
        else:
            weight = f * f * f / 6
            weight_slope = f * f / 2
        value += weight * cubic
        slope += weight_slope * cubic
    tangent = tl.exp(value - 0.5 * tl.log(1 + kappa / scale))
    sine = 2 * tangent / (1 + tangent * tangent)
    grown = kappa + scale
    return 1 - tangent * sine, sine, (slope * _R_CELLS * (scale / grown) - 0.5) / grown


@triton.jit
def _tangent(noise, mode, d, D: tl.constexpr):
    """Return the parts of `_place` in `pcl.distributions.von_mises_fisher`: unit, 1 + |mu_0|, the sign of mu_0, p."""
    is_rest = (d > 0)[None, :]
    direction = tl.where(is_rest, noise, 0.0)
    if D == 2:  # a coordinate of 0 has no direction
        direction = tl.where((d == 1)[None, :] & (noise == 0.0), 1.0, direction)
    norm = tl.sqrt(tl.sum(direction * direction, axis=1))
    unit = direction / tl.where(norm > 0, norm, 1.0)[:, None]
    first = tl.sum(tl.where(is_rest, 0.0, mode), axis=1)
    reach = 1 + tl.abs(first)
    return unit, reach, tl.where(first < 0, -1.0, 1.0), tl.sum(unit * mode, axis=1) / reach


@triton.jit
def anchors_of(n_anchors, D: tl.constexpr, BD: tl.constexpr, BA: tl.constexpr):
    """Return a program's anchors, which of them exist, the coordinates, and which elements of (BA, BD) exist."""
    anchor = tl.program_id(0) * BA + tl.arange(0, BA)
    is_anchor = anchor < n_anchors
    d = tl.arange(0, BD)
    return anchor, is_anchor, d, is_anchor[:, None] & (d < D)[None, :]


@triton.jit
def place_of(anchor, sample, batch_size, K: tl.constexpr):
    """Return the place of a sample in an array (R, K, B)."""
    return (anchor // batch_size * K + sample) * batch_size + anchor % batch_size


@triton.jit
def _sample_kernel(
    noise_ptr, mode_ptr, kappa_ptr, spline_ptr, z_ptr, polar_ptr, scale, n_anchors, batch_size,
    K: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    sample = tl.program_id(1)
    anchor, is_anchor, d, inside = anchors_of(n_anchors, D, BD, BA)
    at = sample * n_anchors + anchor
    noise = tl.load(noise_ptr + at[:, None] * D + d[None, :], mask=inside, other=0.0)
    mode = tl.load(mode_ptr + anchor[:, None] * D + d[None, :], mask=inside, other=0.0)
    kappa = tl.load(kappa_ptr + anchor, mask=is_anchor, other=1.0)
    t = tl.sum(tl.where((d == 0)[None, :], noise, 0.0), axis=1)
    cosine, sine, slope = _polar(t, kappa, spline_ptr, scale)
    unit, _, sign, p = _tangent(noise, mode, d, D)
    tangent = tl.where((d == 0)[None, :], (-sign * p)[:, None], unit)
    z = (cosine - sine * p)[:, None] * mode + sine[:, None] * tangent
    place = place_of(anchor, sample, batch_size, K)
    tl.store(z_ptr + place[:, None] * D + d[None, :], z, mask=inside)
    for i in tl.static_range(3):
        part = cosine if i == 0 else (sine if i == 1 else slope)
        tl.store(polar_ptr + i * K * n_anchors + at, part, mask=is_anchor)


@triton.jit
def _sample_gradient_kernel(
    noise_ptr, mode_ptr, polar_ptr, d_z_ptr, d_mode_ptr, d_kappa_ptr, n_anchors, batch_size,
    K: tl.constexpr, D: tl.constexpr, BD: tl.constexpr, BA: tl.constexpr,
):  # fmt: skip
    anchor, is_anchor, d, inside = anchors_of(n_anchors, D, BD, BA)
    is_first = (d == 0)[None, :]
    mode = tl.load(mode_ptr + anchor[:, None] * D + d[None, :], mask=inside, other=0.0)
    d_mode = tl.zeros([BA, BD], tl.float32)
    d_kappa = tl.zeros([BA], tl.float32)
    for sample in range(K):
        at = sample * n_anchors + anchor
        noise = tl.load(noise_ptr + at[:, None] * D + d[None, :], mask=inside, other=0.0)
        place = place_of(anchor, sample, batch_size, K)
        d_z = tl.load(d_z_ptr + place[:, None] * D + d[None, :], mask=inside, other=0.0)
        cosine = tl.load(polar_ptr + at, mask=is_anchor, other=1.0)
        sine = tl.load(polar_ptr + K * n_anchors + at, mask=is_anchor, other=0.0)
        slope = tl.load(polar_ptr + 2 * K * n_anchors + at, mask=is_anchor, other=0.0)
        unit, reach, sign, p = _tangent(noise, mode, d, D)
        tangent = tl.where(is_first, (-sign * p)[:, None], unit)
        d_cosine = tl.sum(d_z * mode, axis=1)
        d_sine = tl.sum(d_z * tangent, axis=1) - p * d_cosine
        d_p = -sine * (d_cosine + sign * tl.sum(tl.where(is_first, d_z, 0.0), axis=1))
        d_mode += (cosine - sine * p)[:, None] * d_z
        d_mode += (d_p / reach)[:, None] * tangent
        d_kappa += (d_sine * cosine - d_cosine * sine) * sine * slope
    tl.store(d_mode_ptr + anchor[:, None] * D + d[None, :], d_mode, mask=inside)
    tl.store(d_kappa_ptr + anchor, d_kappa, mask=is_anchor)


class _Sample(Function):
    @staticmethod
    def forward(ctx: Any, noise: Tensor, mode: Tensor, kappa: Tensor, table: CosineTable) -> Tensor:
        noise, mode, kappa = noise.contiguous(), mode.contiguous(), kappa.contiguous()
        n_samples, n_runs, batch_size, dim = noise.shape
        z, polar = noise.new_empty(n_runs, n_samples, batch_size, dim), noise.new_empty(3, *noise.shape[:3])
        sizes, n = sizes_of(dim), kappa.numel()
        _sample_kernel[(triton.cdiv(n, sizes["BA"]), n_samples)](
            noise, mode, kappa, table.coefficients, z, polar, table.scale, n, batch_size, K=n_samples, D=dim, **sizes
        )
        ctx.save_for_backward(noise, mode, polar)
        return z

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_z: Tensor) -> tuple[Tensor | None, ...]:
        noise, mode, polar = ctx.saved_tensors
        n_samples, n_runs, batch_size, dim = noise.shape
        d_mode, d_kappa, n = torch.empty_like(mode), noise.new_empty(n_runs, batch_size), n_runs * batch_size
        sizes = sizes_of(dim)
        _sample_gradient_kernel[(triton.cdiv(n, sizes["BA"]),)](
            noise, mode, polar, d_z.contiguous(), d_mode, d_kappa, n, batch_size, K=n_samples, D=dim, **sizes
        )
        return None, d_mode, d_kappa, None


def sizes_of(dim: int) -> dict[str, int]:
    """Return the sizes of a program."""
    block = triton.next_power_of_2(dim)
    return {"BD": block, "BA": max(2, min(16, 256 // block))}  # sized for a program's registers


def samples_of(law: VonMisesFisher, noise: Tensor) -> Tensor:
    """Map standard normals (K, R, B, D) to samples (R, K, B, D) of a law with an exact sampler and the batch (R, B)."""
    table = cosine_table(law.dim, noise.dtype, noise.device)
    result: Tensor = _Sample.apply(noise, law.mu, law.kappa, table)  # type: ignore[no-untyped-call]
    return result
