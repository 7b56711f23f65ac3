"""Contrastive losses on distributions: `loss(anchor, positive, negatives)` returns one value per anchor."""

from pcl.losses.base import Loss, PositiveWeight, in_batch_negatives
from pcl.losses.elk import ELK, ElkNegatives
from pcl.losses.hib import HIB, Expectation, NegativeWeight, hib
from pcl.losses.info_nce import InfoNCE, info_nce
from pcl.losses.mc_info_nce import MCInfoNCE, mc_info_nce

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
    "ElkNegatives",
    "Expectation",
    "InfoNCE",
    "Loss",
    "MCInfoNCE",
    "NegativeWeight",
    "PositiveWeight",
    "hib",
    "in_batch_negatives",
    "info_nce",
    "mc_info_nce",
]
