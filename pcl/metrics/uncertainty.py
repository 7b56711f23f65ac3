"""Rank correlations of 1/kappa with the ambiguity of an image: with annotators' entropy and with crops.

All have the same sign: positive is good, an image with more ambiguity has a larger 1/kappa.
"""
# Axes: N images, C classes

import torch
from torch import Tensor

from pcl.metrics.recovery import spearman

_SUM_TOLERANCE = 1e-3  # shares kept as float16 sum to 1 within about 5e-4


def entropy(soft_labels: Tensor) -> Tensor:
    """Return the entropy of annotators' shares in nats, -sum_c p_c log p_c, with 0 log 0 = 0.

    Shares are added in the order of their size, not of their class: the same votes for other classes give the same
    number to the last bit, so that they tie in a rank correlation. Limits: 0 where all agree, log C for equal shares.
    Shares (N, C), whose rows sum to 1, give (N,), float64.

    Example:
        >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]])).tolist()
        [0.0, 0.6931471805599453]
    """
    if soft_labels.ndim != 2:
        raise ValueError(f"`soft_labels` must be of shape (N, C), but got {tuple(soft_labels.shape)}.")
    shares = soft_labels.double().sort(dim=-1).values
    sums = shares.sum(dim=-1)
    wrong = ~((shares >= 0).all(dim=-1) & ((sums - 1).abs() <= _SUM_TOLERANCE))
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise ValueError(
            f"Soft labels must be shares of at least 0 that sum to 1, but row {row} sums to {sums[row]:g} and has the "
            f"smallest share {shares[row].min():g}; divide counts of votes by their sum."
        )
    total = torch.zeros_like(sums)
    for terms in torch.special.entr(shares).unbind(dim=-1):  # the same order of addition for all rows
        total = total + terms
    return total


def rank_corr_with_uncertainty(kappa: Tensor, quantity: Tensor) -> float:
    """Return Spearman's rank correlation of 1/kappa with a quantity that grows with ambiguity, ties averaged.

    The ranks of 1/kappa are taken from -kappa, without rounding: two float32 kappa can have the same reciprocal. Hence
    it is also the rank correlation of kappa with -quantity, as in the paper's appendix and the released code. kappa = 0
    is the most uncertain, kappa = inf the least. NaN is returned where one side is constant or holds a NaN.

    Example:
        >>> round(rank_corr_with_uncertainty(torch.tensor([30.0, 20.0, 5.0]), torch.tensor([0.0, 0.1, 0.9])), 6)
        1.0
    """
    if kappa.ndim != 1 or kappa.shape != quantity.shape:
        shapes = f"{tuple(kappa.shape)} and {tuple(quantity.shape)}"
        raise ValueError(f"Both vectors must have the same length, but got {shapes}.")
    if len(kappa) < 2:
        raise ValueError(f"At least 2 images must be given, but got {len(kappa)}.")
    return spearman(-kappa, quantity.to(kappa.device))


def crop_rank_corr(kappa: Tensor, kept_fraction: Tensor) -> float:
    """Return Spearman's rank correlation of 1/kappa with the share of an image cropped away, 1 - kept_fraction.

    The paper calls it that of 1/kappa with the "crop size" and reports it as positive, 0.5 to 0.7. Taken literally,
    with the kept fraction as the crop size, it would be negative: smaller crops are more ambiguous. The paper means the
    loss: "with the information lost due to cropping", "the reduction in size". The released code computes the same
    number as the rank correlation of kappa with the kept fraction. That is side of the crop over side of the image, as
    drawn, before it is rounded to pixels.

    Example:
        >>> round(crop_rank_corr(torch.tensor([5.0, 20.0, 30.0]), torch.tensor([0.3, 0.5, 0.9])), 6)
        1.0
    """
    return rank_corr_with_uncertainty(kappa, -kept_fraction)
