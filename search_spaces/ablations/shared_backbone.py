"""kappa from a network of its own, or on top of mu's: the paper's tab:ablation_shared.

    python launch/ablate.py --ablation shared_backbone

kappa's scale is fixed before training, over modes that are still close to each other. Where kappa's only input is the
mode, training mu then moves it far out of its range, before anything trains it: the variant "shared" diverges within
5,000 batches. "shared in range" brings it back at every batch of the mu phase. The released code has neither. The
paper's kappa network has three layers there, ours as many as elsewhere.

Hardware, time, result: one H200, five seeds, trained by `launch/reproduce.py`: the table in docs/results.md.
"""

from pcl.studies.space import Ablation, Variant

ABLATION = Ablation(
    name="shared_backbone",
    question="Does kappa need a network of its own?",
    axis="backbone",
    baseline="independent",
    variants={
        "independent": Variant(),
        "shared": Variant({"encoder.backbone": "shared"}),
        "shared in range": Variant({"encoder.backbone": "shared_in_range"}),
    },
)
