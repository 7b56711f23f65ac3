"""Inputs of the fused loss: posteriors, and random numbers that are functions of (seed, counter).

No numbers or states are stored: a kernel can draw the same numbers twice, and a resumed run draws the same numbers as
one that was not interrupted.
"""

import math
from typing import NamedTuple

from torch import Tensor

# Of Philox4x32. Random123's authors recommend ten and report that seven pass all of BigCrush (Salmon et al., SC 2011).
ROUNDS = 7
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


def kappa_gradients(grad: Tensor, d_kappa: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients in the kappas of anchors, positives and negatives, the last in `shape` (A, N).

    `grad` (A,) is the gradient in the losses; `d_kappa` has the losses' derivatives, in the same order.
    """
    of_anchor, of_positive, of_negatives = d_kappa.split([len(grad), len(grad), math.prod(shape)])
    return grad * of_anchor, grad * of_positive, grad.unsqueeze(-1) * of_negatives.view(shape)
