"""MCInfoNCE, value and gradient, in three kernels: samples, similarities, sums.

- samples: z of every anchor, and the derivative of its polar angle in kappa.
- similarities: for every sample k, one fresh cosine with the positive and with each negative (the two-scalar form of
  `VonMisesFisher.rsample_cosine`), the log ratio r_k, and what each cosine contributes to the gradient.
- sums: loss = log K - log sum_k e^{r_k}, and gradients weighted by the softmax of r.

The random numbers are functions of (seed, step, stream, anchor, sample, negative). The gradient in the anchor's mode
turns z with it: dz = (mu.z) dmu - (dmu.z) mu.

Axes: K samples, A anchors (of all runs), N negatives, D dim.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from pcl.kernels.curves import curves
from pcl.kernels.device_math import normals, odd_polynomial, polynomial, sampled_cosine, words
from pcl.kernels.inputs import STREAM_NEGATIVES, STREAM_SAMPLE, Partners, kappa_gradients
from pcl.kernels.mode_gradients import mode_gradients
from pcl.kernels.samples import SAMPLES_PER_THREAD, anchor_samples
from pcl.kernels.transport import N_COEFFICIENTS, TransportTable

# mypy: disable-error-code="no-untyped-def, untyped-decorator"

_SAMPLE = tl.constexpr(STREAM_SAMPLE)
_NEGATIVES = tl.constexpr(STREAM_NEGATIVES)
_N_COEFFICIENTS = tl.constexpr(N_COEFFICIENTS)

# e^{2 kappa_pos} fits float32: then sums over negatives need not be relative to the most similar one, which takes a
# second pass.
_LARGEST_IN_ONE_PASS = 40.0
_LARGEST_KAPPA_POS = tl.constexpr(_LARGEST_IN_ONE_PASS)

# Up to this size, cosines of samples and modes are cheaper inside the kernel than as a stored matrix product.
LARGEST_INLINE_DIM = 16
SIMILARITY_BLOCK = 256  # samples per program


@triton.jit
def _cosine_of_mode(z_ptrs, mode_ptr, mask, K: tl.constexpr, D: tl.constexpr):
    """Return cosines of samples with one mode."""
    value = tl.load(z_ptrs, mask=mask, other=0.0) * tl.load(mode_ptr)
    for d in tl.static_range(1, D):
        value += tl.load(z_ptrs + d * K, mask=mask, other=0.0) * tl.load(mode_ptr + d)
    return value


@triton.jit
def _normals_of_half(v0, v1, v2, v3, half: tl.constexpr):
    """Return two normals from the first or the second two of four words."""
    if half == 0:
        t, u = normals(v0, v1)
    else:
        t, u = normals(v2, v3)
    return t, u


@triton.jit
def _drawn_negative(
    z_ptr, others_ptr, cosine_ptr, curve_ptr, tangent_ptr, n_curves, a, n, k, mask, t, u,
    K: tl.constexpr, N: tl.constexpr, D: tl.constexpr, IS_INLINE: tl.constexpr,
):  # fmt: skip
    """Return the cosines of samples with a negative's mode and with a sample of it, and the slopes of the latter."""
    if IS_INLINE:
        c = _cosine_of_mode(z_ptr + a * D * K + k, others_ptr + (a * (N + 1) + 1 + n) * D, mask, K, D)
    else:
        c = tl.load(cosine_ptr + (a * (N + 1) + 1 + n) * K + k, mask=mask, other=0.0)
    log_tan = polynomial(curve_ptr, n_curves, t)
    x, slope_c, slope_l = sampled_cosine(c, log_tan, odd_polynomial(tangent_ptr, u))
    return c, x, slope_c, slope_l


@triton.jit
def _similarities_kernel(  # noqa: PLR0912, PLR0915  one program
    c_a_ptr, z_ptr, others_ptr, cosine_ptr, mode_p_ptr, mode_n_ptr, slope_a_ptr, curve_ptr, tangent_ptr,
    kappa_pos_ptr, seed_ptr,
    ratio_ptr, pull_ptr, push_ptr, gap_ptr, d_a_ptr, d_p_ptr, e_kappa_ptr, e_mu_ptr, toward_ptr,
    n_anchors, n_curves, log_weight,
    K: tl.constexpr, N: tl.constexpr, D: tl.constexpr, BK: tl.constexpr, IS_INLINE: tl.constexpr,
    HAS_POSITIVE: tl.constexpr, IS_ONE_PASS: tl.constexpr, GRAD_MU: tl.constexpr, GRAD_KAPPA: tl.constexpr,
):  # fmt: skip
    a = tl.program_id(0).to(tl.int64)  # offsets may exceed 2^31
    k = tl.program_id(1) * BK + tl.arange(0, BK)
    inside = k < K
    at = a * K + k
    seed, step = tl.load(seed_ptr), tl.load(seed_ptr + 1)
    kappa_pos = tl.load(kappa_pos_ptr + a)
    w_a = tl.load(c_a_ptr + at, mask=inside, other=0.0)

    s0, s1, s2, s3 = words(seed, step, _SAMPLE, k, a)
    _, t_p = normals(s0, s1)
    u_p, _ = normals(s2, s3)
    if IS_INLINE:
        c_p = _cosine_of_mode(z_ptr + a * D * K + k, others_ptr + a * (N + 1) * D, inside, K, D)
    else:
        c_p = tl.load(cosine_ptr + a * (N + 1) * K + k, mask=inside, other=0.0)
    curve_p = curve_ptr + n_anchors + a
    log_tan_p = polynomial(curve_p, n_curves, t_p)
    x_p, slope_c_p, slope_l_p = sampled_cosine(c_p, log_tan_p, odd_polynomial(tangent_ptr, u_p))

    top = tl.full([BK], 1.0, tl.float32)
    if not IS_ONE_PASS:  # noqa: SIM102  known when compiling; the other is not
        if kappa_pos > _LARGEST_KAPPA_POS:
            top -= 2.0
            for pair in range(0, (N + 1) // 2):
                v0, v1, v2, v3 = words(seed, step, _NEGATIVES, pair * K + k, a)
                for half in tl.static_range(2):
                    n = tl.minimum(2 * pair + half, N - 1)
                    t_n, u_n = _normals_of_half(v0, v1, v2, v3, half)
                    _, x_n, _, _ = _drawn_negative(
                        z_ptr, others_ptr, cosine_ptr, curve_ptr + 2 * n_anchors + a * N + n, tangent_ptr, n_curves,
                        a, n, k, inside & (2 * pair + half < N), t_n, u_n, K, N, D, IS_INLINE,
                    )  # fmt: skip
                    top = tl.where(2 * pair + half < N, tl.maximum(top, x_n), top)
    total = tl.zeros([BK], tl.float32)
    x_sum = tl.zeros([BK], tl.float32)
    turn = tl.zeros([BK], tl.float32)
    for pair in range(0, (N + 1) // 2):
        v0, v1, v2, v3 = words(seed, step, _NEGATIVES, pair * K + k, a)
        for half in tl.static_range(2):
            n = 2 * pair + half
            is_negative = inside & (n < N)
            n_at = tl.minimum(n, N - 1)
            t_n, u_n = _normals_of_half(v0, v1, v2, v3, half)
            curve_n = curve_ptr + 2 * n_anchors + a * N + n_at
            c_n, x_n, slope_c_n, slope_l_n = _drawn_negative(
                z_ptr, others_ptr, cosine_ptr, curve_n, tangent_ptr, n_curves,
                a, n_at, k, is_negative, t_n, u_n, K, N, D, IS_INLINE,
            )  # fmt: skip
            e = tl.where(is_negative, tl.exp(kappa_pos * (x_n - top)), 0.0)
            total += e
            x_sum += e * x_n
            if GRAD_KAPPA:
                slope_n = polynomial(curve_n + _N_COEFFICIENTS * n_curves, n_curves, t_n)
                tl.store(e_kappa_ptr + (a * N + n_at) * K + k, e * slope_l_n * slope_n, mask=is_negative)
                turn += e * slope_c_n * (w_a * c_n - tl.load(mode_n_ptr + a * N + n_at))
            if GRAD_MU:
                tl.store(e_mu_ptr + (a * N + n_at) * K + k, e * slope_c_n, mask=is_negative)

    total = tl.where(inside, total, 1.0)
    gap = kappa_pos * top + tl.log(total / N) - kappa_pos * x_p
    if HAS_POSITIVE:
        bound = tl.maximum(gap, log_weight)
        ratio = -(bound + tl.log(tl.exp(gap - bound) + tl.exp(log_weight - bound)))
        pull = 1.0 / (1.0 + tl.exp(log_weight - gap))
    else:
        ratio = -gap
        pull = tl.full([BK], 1.0, tl.float32)
    tl.store(ratio_ptr + at, ratio, mask=inside)
    tl.store(pull_ptr + at, pull, mask=inside)
    tl.store(push_ptr + at, pull * kappa_pos / total, mask=inside)
    tl.store(gap_ptr + at, pull * (x_p - x_sum / total), mask=inside)
    if GRAD_KAPPA:
        slope_p = polynomial(curve_p + _N_COEFFICIENTS * n_curves, n_curves, t_p)
        slope_a = tl.load(slope_a_ptr + at, mask=inside, other=0.0)
        toward = slope_c_p * (w_a * c_p - tl.load(mode_p_ptr + a))
        tl.store(d_a_ptr + at, pull * kappa_pos * slope_a * (toward - turn / total), mask=inside)
        tl.store(d_p_ptr + at, pull * kappa_pos * slope_l_p * slope_p, mask=inside)
    if GRAD_MU:
        tl.store(toward_ptr + at, pull * kappa_pos * slope_c_p, mask=inside)


@triton.jit
def _sums_kernel(
    ratio_ptr, push_ptr, gap_ptr, d_a_ptr, d_p_ptr, e_kappa_ptr,
    loss_ptr, weight_ptr, d_kappa_pos_ptr, d_kappa_ptr, n_anchors,
    K: tl.constexpr, N: tl.constexpr, BK: tl.constexpr, GRAD_KAPPA: tl.constexpr,
):  # fmt: skip
    a = tl.program_id(0).to(tl.int64)  # offsets may exceed 2^31
    k = tl.arange(0, BK)
    inside = k < K
    at = a * K + k
    ratio = tl.load(ratio_ptr + at, mask=inside, other=-float("inf"))
    top = tl.max(ratio, axis=0)
    weight = tl.exp(ratio - top)
    total = tl.sum(weight, axis=0)
    weight = weight / total
    tl.store(loss_ptr + a, tl.log(K * 1.0) - top - tl.log(total))
    tl.store(weight_ptr + at, weight, mask=inside)
    tl.store(d_kappa_pos_ptr + a, -tl.sum(weight * tl.load(gap_ptr + at, mask=inside, other=0.0), axis=0))
    if GRAD_KAPPA:
        tl.store(d_kappa_ptr + a, -tl.sum(weight * tl.load(d_a_ptr + at, mask=inside, other=0.0), axis=0))
        d_p = tl.load(d_p_ptr + at, mask=inside, other=0.0)
        tl.store(d_kappa_ptr + n_anchors + a, -tl.sum(weight * d_p, axis=0))
        push = weight * tl.load(push_ptr + at, mask=inside, other=0.0)
        for n in range(N):
            e = tl.load(e_kappa_ptr + (a * N + n) * K + k, mask=inside, other=0.0)
            tl.store(d_kappa_ptr + 2 * n_anchors + a * N + n, tl.sum(push * e, axis=0))


class _FusedMCInfoNCE(Function):
    @staticmethod
    def forward(
        ctx: Any, mu_a: Tensor, mu_p: Tensor, mu_n: Tensor, kappa_a: Tensor, kappa_p: Tensor, kappa_n: Tensor,
        kappa_pos: Tensor, seed_and_step: Tensor, settings: "FusedMCInfoNCE",
    ) -> Tensor:  # fmt: skip
        grad_mu, grad_kappa = ctx.needs_input_grad[0], ctx.needs_input_grad[3]
        (n_anchors, dim), n, k = mu_a.shape, mu_n.shape[1], settings.n_samples
        mu_a, mu_p, mu_n = mu_a.contiguous(), mu_p.contiguous(), mu_n.contiguous()
        curve = curves(settings.table, torch.cat([kappa_a, kappa_p, kappa_n.flatten()]))
        n_curves = curve.shape[1]
        z, c_a, slope_a = anchor_samples(mu_a, curve, k, seed_and_step)
        similarity_block = min(SIMILARITY_BLOCK, max(32, triton.next_power_of_2(k)))
        others = torch.cat([mu_p.unsqueeze(1), mu_n], dim=1)  # (A, 1 + N, D)
        is_inline = dim <= LARGEST_INLINE_DIM
        if is_inline:
            cosines = z
        else:
            with _full_precision():  # the loss depends on these cosines
                cosines = others @ z  # (A, 1 + N, K)
        modes = (others * mu_a.unsqueeze(1)).sum(-1)  # (A, 1 + N)
        mode_p, mode_n = modes[:, 0].contiguous(), modes[:, 1:].contiguous()
        per_sample = mu_a.new_empty(7, n_anchors, k)
        ratio, pull, push, gap, d_a, d_p, toward = per_sample
        e_kappa = mu_a.new_empty(n_anchors, n, k) if grad_kappa else cosines
        e_mu = mu_a.new_empty(n_anchors, n, k) if grad_mu else cosines
        weight = settings.positive_weight
        _similarities_kernel[(n_anchors, triton.cdiv(k, similarity_block))](
            c_a, z, others, cosines, mode_p, mode_n, slope_a, curve, settings.table.tangent,
            kappa_pos.expand(n_anchors).contiguous(), seed_and_step, ratio, pull, push, gap, d_a, d_p, e_kappa, e_mu,
            toward, n_anchors, n_curves, math.log(weight) if weight > 0 else 0.0,
            K=k, N=n, D=dim, BK=similarity_block, IS_INLINE=is_inline,
            HAS_POSITIVE=weight > 0, IS_ONE_PASS=settings.is_one_pass, GRAD_MU=grad_mu, GRAD_KAPPA=grad_kappa,
            num_warps=max(1, similarity_block // (32 * SAMPLES_PER_THREAD)),
        )  # fmt: skip
        loss, sample_weight = mu_a.new_empty(n_anchors), torch.empty_like(ratio)
        d_kappa_pos, d_kappa = torch.empty_like(loss), mu_a.new_empty(n_curves)
        _sums_kernel[(n_anchors,)](
            ratio, push, gap, d_a, d_p, e_kappa, loss, sample_weight, d_kappa_pos, d_kappa, n_anchors,
            K=k, N=n, BK=triton.next_power_of_2(k), GRAD_KAPPA=grad_kappa, num_warps=4,
        )  # fmt: skip
        d_mus: tuple[Tensor, ...] = ()
        if grad_mu:
            weighted = sample_weight, push, toward
            d_mus = mode_gradients((mu_a, mu_p, mu_n), z, c_a, e_mu, weighted, (mode_p, mode_n))
        ctx.save_for_backward(d_kappa, d_kappa_pos, *d_mus)
        ctx.kappa_n_shape, ctx.kappa_pos_shape = kappa_n.shape, kappa_pos.shape
        return loss

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        d_kappa, d_kappa_pos, *d_mus = ctx.saved_tensors
        needs = ctx.needs_input_grad
        grads: list[Tensor | None] = [None] * 9
        if needs[0]:
            grads[0], grads[1] = grad.unsqueeze(-1) * d_mus[0], grad.unsqueeze(-1) * d_mus[1]
            grads[2] = grad.view(-1, 1, 1) * d_mus[2]
        if needs[3]:
            grads[3:6] = kappa_gradients(grad, d_kappa, ctx.kappa_n_shape)
        if needs[6]:
            grads[6] = (grad * d_kappa_pos).sum_to_size(ctx.kappa_pos_shape)
        return tuple(grads)


@contextmanager
def _full_precision() -> Iterator[None]:
    """Disable TF32 in float32 products."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


class FusedMCInfoNCE:
    """`pcl.losses.MCInfoNCE` with K samples, by fused kernels.

    Args:
        table: Transport table of the encoder's dimension and law.
        n_samples: Number K of samples.
        positive_weight: Weight of the positive in the denominator.
        largest_kappa_pos: Upper bound of kappa_pos, `math.inf` if it has none. Above 40, a second pass may be needed.
    """

    def __init__(self, table: TransportTable, n_samples: int, positive_weight: float, largest_kappa_pos: float) -> None:
        self.table, self.n_samples, self.positive_weight = table, n_samples, positive_weight
        self.is_one_pass = largest_kappa_pos <= _LARGEST_IN_ONE_PASS

    def __call__(self, partners: Partners, kappa_pos: Tensor, seed_and_step: Tensor) -> Tensor:
        """Return the loss of each anchor, (A,), with gradients in kappa_pos, and in modes, concentrations or both.

        Args:
            partners: Modes and concentrations.
            kappa_pos: Concentration of positive pairs, at most `largest_kappa_pos`; one or (A,).
            seed_and_step: Two int64 numbers on the device, which determine the random numbers.
        """
        result: Tensor = _FusedMCInfoNCE.apply(*partners, kappa_pos, seed_and_step, self)  # type: ignore[no-untyped-call]
        return result
