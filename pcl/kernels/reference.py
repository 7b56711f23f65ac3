"""The kernels' formulas in plain torch, with the kernels' own random numbers, as the reference of their tests.

Axes: K samples, A anchors, N negatives, D dim.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from pcl.kernels.philox import normals, philox
from pcl.kernels.transport import N_COEFFICIENTS, TransportTable, polynomial
from pcl.losses import mc_info_nce

# Streams keep the counters of different purposes apart.
STREAM_TANGENT, STREAM_SAMPLE, STREAM_NEGATIVES = 0, 1, 2


class Partners(NamedTuple):
    """Modes and concentrations of the posteriors that a loss compares."""

    mu_anchor: Tensor  # (A, D)
    mu_positive: Tensor  # (A, D)
    mu_negatives: Tensor  # (A, N, D)
    kappa_anchor: Tensor  # (A,)
    kappa_positive: Tensor  # (A,)
    kappa_negatives: Tensor  # (A, N)


class Noise(NamedTuple):
    """Standard normals of one step."""

    tangent: Tensor  # (K, A, D)
    anchor: Tensor  # (K, A)
    positive: Tensor  # (2, K, A)
    negatives: Tensor  # (2, K, A, N)


def draw_noise(seed: int, step: int, n_samples: int, partners: Partners) -> Noise:
    """Draw the same normals as the kernel."""
    n_anchors, n, dim = partners.mu_negatives.shape
    sample, anchor = torch.arange(n_samples).view(-1, 1), torch.arange(n_anchors)
    # One counter gives four coordinates.
    at_group = torch.arange((dim + 3) // 4) * n_samples + sample.unsqueeze(-1)
    g = philox(seed, (at_group, anchor.view(-1, 1), STREAM_TANGENT, step))
    tangent = torch.stack([*normals(g[:2]), *normals(g[2:])], dim=-1).flatten(-2)[..., :dim]
    s = philox(seed, (sample, anchor, STREAM_SAMPLE, step))
    t_anchor, t_positive = normals(s[:2])
    u_positive, _ = normals(s[2:])
    # One counter gives two negatives.
    at_pair = torch.arange((n + 1) // 2) * n_samples + sample.unsqueeze(-1)
    v = philox(seed, (at_pair, anchor.view(-1, 1), STREAM_NEGATIVES, step))
    even, odd = torch.stack(normals(v[:2])), torch.stack(normals(v[2:]))
    negatives = torch.stack([even, odd], dim=-1).flatten(-2)[..., :n]
    return Noise(tangent, t_anchor, torch.stack([t_positive, u_positive]), negatives)


def fused_mc_info_nce(
    table: TransportTable, partners: Partners, noise: Noise, kappa_pos: Tensor, positive_weight: float
) -> Tensor:
    """Return the loss of each anchor, (A,), with autograd's gradients."""
    mu_a, mu_p, mu_n, kappa_a, kappa_p, kappa_n = partners
    cosine, sine = _polar(_transport(table, kappa_a, noise.anchor))
    along = (noise.tangent * mu_a).sum(-1, keepdim=True)
    direction = torch.nn.functional.normalize(noise.tangent - along * mu_a, dim=-1).detach()
    mode = mu_a.detach()
    drawn = cosine.unsqueeze(-1) * mode + sine.unsqueeze(-1) * direction
    z = drawn + _turn(drawn.detach(), mode, mu_a - mode)
    positive = _cosine(table, (z * mu_p).sum(-1), kappa_p, noise.positive)
    negatives = _cosine(table, torch.einsum("kad,and->kan", z, mu_n), kappa_n, noise.negatives)
    scale = kappa_pos.expand(len(mu_a))
    return mc_info_nce(scale * positive, scale.unsqueeze(-1) * negatives, positive_weight)


def _turn(z: Tensor, mode: Tensor, step: Tensor) -> Tensor:
    """Return how z moves with its mode: by the rotation that moves the mode, to first order."""
    return (mode * z).sum(-1, keepdim=True) * step - (step * z).sum(-1, keepdim=True) * mode


def _cosine(table: TransportTable, c: Tensor, kappa: Tensor, noise: Tensor) -> Tensor:
    w, s = _polar(_transport(table, kappa, noise[0]))
    u, _ = _polar(polynomial(table.tangent, noise[1]))
    return c * w + (1 - c * c).clamp(min=torch.finfo(torch.float32).eps).sqrt() * s * u


def _transport(table: TransportTable, kappa: Tensor, t: Tensor) -> Tensor:
    """Return log tan(theta/2), with the table's own derivative in kappa."""
    curves = table.curves(kappa.detach()).view(2 * N_COEFFICIENTS, *kappa.shape)
    slope = polynomial(curves[N_COEFFICIENTS:], t)
    return polynomial(curves[:N_COEFFICIENTS], t) + slope * (kappa - kappa.detach())


def _polar(log_tan: Tensor) -> tuple[Tensor, Tensor]:
    tangent = log_tan.exp()
    sine = 2 * tangent / (1 + tangent * tangent)
    return 1 - tangent * sine, sine
