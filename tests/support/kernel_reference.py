"""The fused kernels' formulas in plain torch, with the kernels' own random numbers.

Axes: K samples, A anchors, N negatives, D dim.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from pcl.kernels.inputs import ROUNDS, STREAM_NEGATIVES, STREAM_SAMPLE, STREAM_TANGENT, Partners
from pcl.kernels.transport import N_COEFFICIENTS, R_CELLS, TransportTable
from pcl.losses import Expectation, hib, mc_info_nce
from tests.support.oracles import unit_vectors

_MASK = 0xFFFFFFFF


class Noise(NamedTuple):
    """Standard normals of one step."""

    tangent: Tensor  # (K, A, D)
    anchor: Tensor  # (K, A)
    positive: Tensor  # (2, K, A)
    negatives: Tensor  # (2, K, A, N)


def partners_of(n_anchors: int, n_negatives: int, dim: int) -> Partners:
    generator = torch.Generator().manual_seed(0)

    def kappa(*shape: int) -> Tensor:
        return 16 + 16 * torch.rand(shape, generator=generator)

    anchor = unit_vectors(n_anchors, dim, generator=generator, dtype=torch.float32)
    positive = torch.nn.functional.normalize(
        anchor + 0.3 * unit_vectors(n_anchors, dim, generator=generator, dtype=torch.float32), dim=-1
    )
    negatives = unit_vectors(n_anchors, n_negatives, dim, generator=generator, dtype=torch.float32)
    return Partners(anchor, positive, negatives, kappa(n_anchors), kappa(n_anchors), kappa(n_anchors, n_negatives))


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
    positive, negatives = _cosines(table, partners, noise)
    scale = kappa_pos.expand(positive.shape[1])
    return mc_info_nce(scale * positive, scale.unsqueeze(-1) * negatives, positive_weight)


def fused_hib(
    table: TransportTable,
    partners: Partners,
    noise: Noise,
    a: Tensor,
    b: Tensor,
    expectation: Expectation,
    negative_weight: float,
) -> Tensor:
    """Return the loss of each anchor, (A,), with autograd's gradients."""
    positive, negatives = _cosines(table, partners, noise)
    a, b = a.expand(positive.shape[1]), b.expand(positive.shape[1])
    matches = a * positive + b, a.unsqueeze(-1) * negatives + b.unsqueeze(-1)
    return hib(*matches, 1.0, 0.0, expectation, negative_weight)


def _cosines(table: TransportTable, partners: Partners, noise: Noise) -> tuple[Tensor, Tensor]:
    """Return cosines of samples of the anchors with fresh ones of their positives, (K, A), and negatives, (K, A, N)."""
    mu_a, mu_p, mu_n, kappa_a, kappa_p, kappa_n = partners
    cosine, sine = _polar(_transport(table, kappa_a, noise.anchor))
    along = (noise.tangent * mu_a).sum(-1, keepdim=True)
    direction = torch.nn.functional.normalize(noise.tangent - along * mu_a, dim=-1).detach()
    mode = mu_a.detach()
    drawn = cosine.unsqueeze(-1) * mode + sine.unsqueeze(-1) * direction
    z = drawn + _turn(drawn.detach(), mode, mu_a - mode)
    positive = _cosine(table, (z * mu_p).sum(-1), kappa_p, noise.positive)
    return positive, _cosine(table, torch.einsum("kad,and->kan", z, mu_n), kappa_n, noise.negatives)


def _turn(z: Tensor, mode: Tensor, step: Tensor) -> Tensor:
    """Return how z moves with its mode: by the rotation that moves the mode, to first order."""
    return (mode * z).sum(-1, keepdim=True) * step - (step * z).sum(-1, keepdim=True) * mode


def _cosine(table: TransportTable, c: Tensor, kappa: Tensor, noise: Tensor) -> Tensor:
    w, s = _polar(_transport(table, kappa, noise[0]))
    u, _ = _polar(polynomial(table.tangent, noise[1]))
    return c * w + (1 - c * c).clamp(min=torch.finfo(torch.float32).eps).sqrt() * s * u


def _transport(table: TransportTable, kappa: Tensor, t: Tensor) -> Tensor:
    """Return log tan(theta/2), with the table's own derivative in kappa."""
    both = curves(table, kappa.detach()).view(2 * N_COEFFICIENTS, *kappa.shape)
    slope = polynomial(both[N_COEFFICIENTS:], t)
    return polynomial(both[:N_COEFFICIENTS], t) + slope * (kappa - kappa.detach())


def _polar(log_tan: Tensor) -> tuple[Tensor, Tensor]:
    tangent = log_tan.exp()
    sine = 2 * tangent / (1 + tangent * tangent)
    return 1 - tangent * sine, sine


def curves(table: TransportTable, kappa: Tensor) -> Tensor:
    """`pcl.kernels.curves.curves`: both polynomials for every kappa, (2 N_COEFFICIENTS, n)."""
    kappa = kappa.flatten()
    grown = kappa + table.scale
    position = (kappa / grown) * R_CELLS
    cell = position.to(torch.int32).clamp(0, R_CELLS - 1)
    f = position - cell
    weights = [
        -f * (f - 1) * (f - 2) / 6,
        (f + 1) * (f - 1) * (f - 2) / 2,
        -(f + 1) * f * (f - 2) / 2,
        (f + 1) * f * (f - 1) / 6,
    ]  # of the values at -1, 0, 1, 2 in the cubic through them
    rows = table.nodes.flatten(start_dim=1)
    value = sum(weight.unsqueeze(-1) * rows[cell + i] for i, weight in enumerate(weights))
    assert isinstance(value, Tensor)
    value[:, 0] -= 0.5 * torch.log1p(kappa / table.scale)
    value[:, N_COEFFICIENTS:] /= grown.unsqueeze(-1)
    return value.T.contiguous()


def polynomial(coefficients: Tensor, t: Tensor) -> Tensor:
    """Evaluate a polynomial: coefficients (N_COEFFICIENTS, ...) of rising powers, broadcast against t."""
    value = coefficients[-1]
    for coefficient in coefficients.flip(0)[1:]:
        value = value * t + coefficient
    return value


def philox(seed: int, counter: tuple[Tensor, int | Tensor, int, int]) -> list[Tensor]:
    """Return four words of 32 random bits, as int64, for every entry of the counter's tensors."""
    c0, c1, c2, c3 = torch.broadcast_tensors(*(torch.as_tensor(c, dtype=torch.int64) for c in counter))
    k0, k1 = seed & _MASK, seed >> 32 & _MASK
    for _ in range(ROUNDS):
        high_b, low_b = _multiply(0xCD9E8D57, c2)
        high_a, low_a = _multiply(0xD2511F53, c0)
        c0, c1, c2, c3 = high_b ^ c1 ^ k0, low_b, high_a ^ c3 ^ k1, low_a
        k0, k1 = k0 + 0x9E3779B9 & _MASK, k1 + 0xBB67AE85 & _MASK
    return [c0, c1, c2, c3]


def _multiply(constant: int, word: Tensor) -> tuple[Tensor, Tensor]:
    """Return the high and low 32 bits of a product of two 32-bit words, without overflowing 63 bits."""
    low = constant * (word & 0xFFFF)
    high = constant * (word >> 16) + (low >> 16)
    return high >> 16, (high & 0xFFFF) << 16 | low & 0xFFFF


def normals(words: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return two standard normals from two words, by Box and Muller, of 24 bits each: none is beyond 5.9."""
    radius_word, angle_word = words
    u = (radius_word >> 8).float() * 2.0**-24 + 2.0**-25
    angle = (angle_word >> 8).float() * (2 * math.pi * 2.0**-24)
    radius = torch.sqrt(-2 * torch.log(u))
    return radius * torch.cos(angle), radius * torch.sin(angle)
