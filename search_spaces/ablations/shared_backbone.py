"""kappa by a network of its own, or on top of mu's: the paper's tab:ablation_shared.

    python launch/ablate.py --ablation shared_backbone

Hardware, time, result: not yet run.
"""

from pcl.studies.ablation import Ablation, Variant

ABLATION = Ablation(
    name="shared_backbone",
    question="Does kappa need a network of its own?",
    axis="backbone",
    baseline="independent",
    variants={
        "independent": Variant(),
        "shared": Variant({"encoder.backbone": "shared"}),
        "shared, kappa kept in range": Variant({"encoder.backbone": "shared_in_range"}),
    },
)
