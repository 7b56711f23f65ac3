"""HIB, value and gradient, in two kernels: samples, and pairs of an anchor with its positive or a negative.

A program of the second kernel has one pair and all of its samples: it draws their cosines, and sums the pair's terms of
the loss and its gradients over them. No cosine is stored. The random numbers and the form of the gradient in the
anchor's mode are those of `pcl.kernels.mc_info_nce`.

Axes: K samples, A anchors (of all runs), N negatives, D dim.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.kernels.curves import curves
from pcl.kernels.device_math import normals, odd_polynomial, polynomial, sampled_cosine, words
from pcl.kernels.inputs import STREAM_NEGATIVES, STREAM_SAMPLE, Partners, kappa_gradients
from pcl.kernels.samples import SAMPLES_PER_THREAD, anchor_samples
from pcl.kernels.transport import N_COEFFICIENTS, TransportTable

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_SAMPLE = tl.constexpr(STREAM_SAMPLE)
_NEGATIVES = tl.constexpr(STREAM_NEGATIVES)
_N_COEFFICIENTS = tl.constexpr(N_COEFFICIENTS)
MOST_SAMPLES = 4_096  # of a pair, as a program holds all of them at once


@triton.jit
def _pairs_kernel(  # noqa: PLR0915  one pass
    mu_ptr, others_ptr, z_ptr, w_ptr, slope_ptr, curve_ptr, tangent_ptr, scale_ptr, offset_ptr, seed_ptr,
    loss_ptr, d_mu_ptr, d_others_ptr, d_kappa_anchor_ptr, d_kappa_ptr, d_scale_ptr, d_offset_ptr,
    n_anchors, n_curves, negative_weight,
    K: tl.constexpr, N: tl.constexpr, D: tl.constexpr, BK: tl.constexpr,
    IS_MEAN_INSIDE: tl.constexpr, GRAD_MU: tl.constexpr, GRAD_KAPPA: tl.constexpr, GRAD_SCALE: tl.constexpr,
):  # fmt: skip
    """Compute the term of one pair, -weight times log E sigmoid(y) or E log sigmoid(y), y = +-(a z.z' + b)."""
    a = tl.program_id(0).to(tl.int64)  # offsets may exceed 2^31
    other = tl.program_id(1)  # 0 is the positive
    pair = a * (N + 1) + other
    k = tl.arange(0, BK)
    inside = k < K
    seed, step = tl.load(seed_ptr), tl.load(seed_ptr + 1)
    scale, offset = tl.load(scale_ptr + a), tl.load(offset_ptr + a)
    if other == 0:
        s0, s1, s2, s3 = words(seed, step, _SAMPLE, k, a)
        _, t = normals(s0, s1)
        u, _ = normals(s2, s3)
        place = n_anchors + a
    else:
        v0, v1, v2, v3 = words(seed, step, _NEGATIVES, (other - 1) // 2 * K + k, a)
        is_first = (other - 1) % 2 == 0
        t, u = normals(tl.where(is_first, v0, v2), tl.where(is_first, v1, v3))
        place = 2 * n_anchors + a * N + other - 1
    c = tl.zeros([BK], tl.float32)
    modes = 0.0  # cosine of the two modes
    for d in range(D):
        mode = tl.load(others_ptr + pair * D + d)
        modes += mode * tl.load(mu_ptr + a * D + d)
        c += mode * tl.load(z_ptr + (a * D + d) * K + k, mask=inside, other=0.0)
    log_tan = polynomial(curve_ptr + place, n_curves, t)
    x, slope_c, slope_l = sampled_cosine(c, log_tan, odd_polynomial(tangent_ptr, u))

    sign = tl.where(other == 0, 1.0, -1.0)
    weight = tl.where(other == 0, 1.0, negative_weight)
    y = sign * (scale * x + offset)
    e = tl.exp(-tl.abs(y))
    log_match = tl.minimum(y, 0.0) - tl.log(1.0 + e)
    if IS_MEAN_INSIDE:
        log_match = tl.where(inside, log_match, -float("inf"))
        top = tl.max(log_match, axis=0)
        share = tl.exp(log_match - top)
        total = tl.sum(share, axis=0)
        share = share / total
        term = top + tl.log(total / K)
    else:
        share = tl.where(inside, 1.0 / K, 0.0)
        term = tl.sum(share * log_match, axis=0)
    tl.store(loss_ptr + pair, -weight * term)
    slope_y = -weight * sign * share * tl.where(y > 0, e, 1.0) / (1.0 + e)  # gradient in a x + b
    if GRAD_SCALE:
        tl.store(d_scale_ptr + pair, tl.sum(slope_y * x, axis=0))
        tl.store(d_offset_ptr + pair, tl.sum(slope_y, axis=0))
    pull = scale * slope_y  # gradient in x

    w = tl.load(w_ptr + a * K + k, mask=inside, other=0.0)
    if GRAD_KAPPA:
        slope = polynomial(curve_ptr + _N_COEFFICIENTS * n_curves + place, n_curves, t)
        tl.store(d_kappa_ptr + place, tl.sum(pull * slope_l * slope, axis=0))
        slope_anchor = tl.load(slope_ptr + a * K + k, mask=inside, other=0.0)
        tl.store(d_kappa_anchor_ptr + pair, tl.sum(pull * slope_c * slope_anchor * (w * c - modes), axis=0))
    if GRAD_MU:
        pull = pull * slope_c
        along = tl.sum(pull * w, axis=0)
        for d in range(D):
            z = tl.load(z_ptr + (a * D + d) * K + k, mask=inside, other=0.0)
            d_mode = tl.sum(pull * z, axis=0)
            tl.store(d_others_ptr + pair * D + d, d_mode)
            tl.store(d_mu_ptr + pair * D + d, along * tl.load(others_ptr + pair * D + d) - modes * d_mode)


class _FusedHIB(Function):
    @staticmethod
    def forward(
        ctx: Any, mu_a: Tensor, mu_p: Tensor, mu_n: Tensor, kappa_a: Tensor, kappa_p: Tensor, kappa_n: Tensor,
        a: Tensor, b: Tensor, seed_and_step: Tensor, settings: "FusedHIB",
    ) -> Tensor:  # fmt: skip
        grad_mu, grad_kappa = ctx.needs_input_grad[0], ctx.needs_input_grad[3]
        grad_scale = ctx.needs_input_grad[6] or ctx.needs_input_grad[7]
        (n_anchors, dim), n, k = mu_a.shape, mu_n.shape[1], settings.n_samples
        mu_a = mu_a.contiguous()
        others = torch.cat([mu_p.unsqueeze(1), mu_n], dim=1)  # (A, 1 + N, D)
        curve = curves(settings.table, torch.cat([kappa_a, kappa_p, kappa_n.flatten()]))
        z, w, slope = anchor_samples(mu_a, curve, k, seed_and_step)
        per_pair = mu_a.new_empty(4, n_anchors, 1 + n)
        loss, d_kappa_anchor, d_a, d_b = per_pair
        d_mu, d_others = torch.empty_like(others), torch.empty_like(others)
        d_kappa = mu_a.new_empty(curve.shape[1])
        block = max(32, triton.next_power_of_2(k))
        _pairs_kernel[(n_anchors, 1 + n)](
            mu_a, others, z, w, slope, curve, settings.table.tangent,
            a.expand(n_anchors).contiguous(), b.expand(n_anchors).contiguous(), seed_and_step,
            loss, d_mu, d_others, d_kappa_anchor, d_kappa, d_a, d_b,
            n_anchors, curve.shape[1], settings.negative_weight,
            K=k, N=n, D=dim, BK=block,
            IS_MEAN_INSIDE=settings.is_mean_inside, GRAD_MU=grad_mu, GRAD_KAPPA=grad_kappa, GRAD_SCALE=grad_scale,
            num_warps=min(16, max(1, block // (32 * SAMPLES_PER_THREAD))),
        )  # fmt: skip
        d_mu_anchor = d_mu.sum(1) if grad_mu else d_mu
        if grad_kappa:
            torch.sum(d_kappa_anchor, 1, out=d_kappa[:n_anchors])
        d_scale = per_pair[2:].sum(-1) if grad_scale else d_a  # of a and b, (2, A)
        ctx.save_for_backward(d_mu_anchor, d_others, d_kappa, d_scale)
        ctx.kappa_n_shape, ctx.a_shape, ctx.b_shape = kappa_n.shape, a.shape, b.shape
        per_anchor: Tensor = loss.sum(1)
        return per_anchor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_mu, d_others, d_kappa, d_scale = ctx.saved_tensors
        grads: list[Tensor | None] = [None] * 10
        if ctx.needs_input_grad[0]:
            grads[0] = grad.unsqueeze(-1) * d_mu
            others = grad.view(-1, 1, 1) * d_others
            grads[1], grads[2] = others[:, 0], others[:, 1:]
        if ctx.needs_input_grad[3]:
            grads[3:6] = kappa_gradients(grad, d_kappa, ctx.kappa_n_shape)
        if ctx.needs_input_grad[6]:
            grads[6] = (grad * d_scale[0]).sum_to_size(ctx.a_shape)
        if ctx.needs_input_grad[7]:
            grads[7] = (grad * d_scale[1]).sum_to_size(ctx.b_shape)
        return tuple(grads)


class FusedHIB:
    """`pcl.losses.HIB` with K samples, by fused kernels; `table` is that of the encoder's dimension and law."""

    def __init__(self, table: TransportTable, n_samples: int, is_mean_inside: bool, negative_weight: float) -> None:
        self.table, self.n_samples = table, n_samples
        self.is_mean_inside, self.negative_weight = is_mean_inside, float(negative_weight)

    def __call__(self, partners: Partners, a: Tensor, b: Tensor, seed_and_step: Tensor) -> Tensor:
        """Return the loss of each anchor, (A,), with gradients in a, b, and in modes, concentrations or both.

        Args:
            partners: Modes and concentrations.
            a: Scale of the match probability; one or (A,).
            b: Offset of the match probability; one or (A,).
            seed_and_step: Two int64 numbers on the device, which determine the random numbers.
        """
        result: Tensor = _FusedHIB.apply(*partners, a, b, seed_and_step, self)  # type: ignore[no-untyped-call]
        return result
