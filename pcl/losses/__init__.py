"""Contrastive losses on distributions: `loss(anchor, positive, negatives)` returns one value per anchor."""

from pcl.losses.base import Loss, PositiveWeight, in_batch_negatives
from pcl.losses.elk import ELK, ElkNegatives, ElkNormalizer
from pcl.losses.hib import HIB, Expectation, NegativeWeight, hib
from pcl.losses.info_nce import InfoNCE, info_nce
from pcl.losses.mc_info_nce import AnchorSamples, MCInfoNCE, PartnerSamples, mc_info_nce

LossConfig = MCInfoNCE.Config | HIB.Config | ELK.Config | InfoNCE.Config

LOSSES: dict[str, type[MCInfoNCE] | type[HIB] | type[ELK] | type[InfoNCE]] = {
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
    "Loss",
    "LossConfig",
    "MCInfoNCE",
    "NegativeWeight",
    "PartnerSamples",
    "PositiveWeight",
    "hib",
    "in_batch_negatives",
    "info_nce",
    "mc_info_nce",
]
