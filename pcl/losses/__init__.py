"""Contrastive losses on distributions: `loss(anchor, positive, negatives)` returns one value per anchor."""

from pcl.losses.base import Loss, LossConfig, Negatives, PositiveWeight, Triple, in_batch_negatives
from pcl.losses.elk import ELK, ElkNegatives, ElkNormalizer
from pcl.losses.hib import HIB, Expectation, NegativeWeight, hib
from pcl.losses.info_nce import InfoNCE, info_nce
from pcl.losses.log_mean import LogMean
from pcl.losses.mc_info_nce import AnchorSamples, MCInfoNCE, PartnerSamples, mc_info_nce

LOSSES: dict[str, type[Loss]] = {
    "mc_info_nce": MCInfoNCE,
    "hib": HIB,
    "elk": ELK,
    "info_nce": InfoNCE,
}

__all__ = [
    "ELK",
    "HIB",
    "LOSSES",
    "AnchorSamples",
    "ElkNegatives",
    "ElkNormalizer",
    "Expectation",
    "InfoNCE",
    "LogMean",
    "Loss",
    "LossConfig",
    "MCInfoNCE",
    "NegativeWeight",
    "Negatives",
    "PartnerSamples",
    "PositiveWeight",
    "Triple",
    "hib",
    "in_batch_negatives",
    "info_nce",
    "mc_info_nce",
]
