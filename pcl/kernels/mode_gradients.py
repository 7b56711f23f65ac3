"""Gradients of MCInfoNCE in the modes, from what its kernels store of each sample.

With dz = -toward mu_p + sum_n e mu_n, the gradient in the anchor's mode is sum_k (mu.z) dz - (mu.dz) z.

Axes: K samples, A anchors (of all runs), N negatives, D dim.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

# mypy: disable-error-code="no-untyped-def, untyped-decorator"


@triton.jit
def _one_negative_kernel(
    mu_a_ptr, mu_p_ptr, mu_n_ptr, z_ptr, c_a_ptr, e_ptr, push_ptr, toward_ptr, weight_ptr, mode_p_ptr, mode_n_ptr,
    d_a_ptr, d_p_ptr, d_n_ptr, K: tl.constexpr, D: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the gradients in the modes for a single negative."""
    a = tl.program_id(0).to(tl.int64)  # offsets may exceed 2^31
    k = tl.arange(0, BK)
    inside = k < K
    at = a * K + k
    weight = tl.load(weight_ptr + at, mask=inside, other=0.0)
    c_a = tl.load(c_a_ptr + at, mask=inside, other=0.0)
    e = tl.load(e_ptr + at, mask=inside, other=0.0) * tl.load(push_ptr + at, mask=inside, other=0.0) * weight
    toward = tl.load(toward_ptr + at, mask=inside, other=0.0) * weight
    turned = e * tl.load(mode_n_ptr + a) - toward * tl.load(mode_p_ptr + a)
    along_n, along_p = tl.sum(e * c_a, axis=0), tl.sum(toward * c_a, axis=0)
    for d in range(D):
        z = tl.load(z_ptr + (a * D + d) * K + k, mask=inside, other=0.0)
        mu_p, mu_n = tl.load(mu_p_ptr + a * D + d), tl.load(mu_n_ptr + a * D + d)
        tl.store(d_n_ptr + a * D + d, tl.sum(e * z, axis=0))
        tl.store(d_p_ptr + a * D + d, -tl.sum(toward * z, axis=0))
        tl.store(d_a_ptr + a * D + d, along_n * mu_n - along_p * mu_p - tl.sum(turned * z, axis=0))


def mode_gradients(
    mus: tuple[Tensor, Tensor, Tensor], z: Tensor, c_a: Tensor, e_mu: Tensor, of_samples: tuple[Tensor, Tensor, Tensor],
    cosines: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Return the gradients in the modes of anchors (A, D), positives (A, D) and negatives (A, N, D).

    Args:
        mus: These modes, contiguous.
        z: Samples of the anchors, (A, D, K).
        c_a: Their cosines with the anchors' modes, (A, K).
        e_mu: How much each negative repels each sample, before the sample's factor, (A, N, K).
        of_samples: Weight of each sample, its factor of the negatives, and how much its positive attracts it; (A, K).
        cosines: Cosines of the anchors' modes with those of positives, (A,), and of negatives, (A, N).
    """
    (mu_a, mu_p, mu_n), (weight, push, toward) = mus, of_samples
    (n_anchors, dim), n_samples = mu_a.shape, z.shape[2]
    if mu_n.shape[1] > 1:
        return _of_many(mu_a, mu_p, mu_n, z, c_a, e_mu, weight * push, weight * toward)
    results = torch.empty_like(mu_a), torch.empty_like(mu_p), torch.empty_like(mu_n)
    _one_negative_kernel[(n_anchors,)](
        mu_a, mu_p, mu_n, z, c_a, e_mu, push, toward, weight, *cosines, *results,
        K=n_samples, D=dim, BK=triton.next_power_of_2(n_samples), num_warps=4,
    )  # fmt: skip
    return results


def _of_many(
    mu_a: Tensor, mu_p: Tensor, mu_n: Tensor, z: Tensor, c_a: Tensor, e_mu: Tensor, push: Tensor, toward: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients in the modes for several negatives, as matrix products."""
    e_mu = e_mu * push.unsqueeze(1)  # (A, N, K)
    d_mu_n = e_mu @ z.mT
    d_mu_p = -(toward.unsqueeze(1) @ z.mT)
    along = e_mu @ c_a.unsqueeze(-1)  # (A, N, 1)
    turned = (mu_n @ mu_a.unsqueeze(-1)).mT @ e_mu - toward.unsqueeze(1) * (mu_p * mu_a).sum(-1).view(-1, 1, 1)
    d_mu_a = along.mT @ mu_n - (toward * c_a).sum(-1).view(-1, 1, 1) * mu_p.unsqueeze(1) - turned @ z.mT
    return d_mu_a.squeeze(1), d_mu_p.squeeze(1), d_mu_n
