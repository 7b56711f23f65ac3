"""Philox4x32 in torch, the counter-based random numbers of the fused kernels; equal to `triton.language.philox`.

A number is a function of (seed, counter): nothing is stored, a kernel can draw the same numbers twice, and a run
resumed at a step draws what it would have drawn.
"""

import math

import torch
from torch import Tensor

# Random123's authors recommend ten rounds and report that seven pass all of BigCrush (Salmon et al., SC 2011).
ROUNDS = 7

_MASK = 0xFFFFFFFF


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
