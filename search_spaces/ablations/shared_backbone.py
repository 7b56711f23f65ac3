"""kappa from a network of its own, or on top of mu's: the paper's tab:ablation_shared.

    python launch/ablate.py --ablation shared_backbone

"shared" is what the release's last version computes: kappa = f(mu) with a network of eight layers whose range is set
over inputs x fed into it. Under `reference` the truth is then shared as well, with one layer fewer, so the two variants
recover different truths; under the other profiles only the encoder is shared.

Hardware, time, result: one H200, five seeds, trained by `launch/reproduce.py`: the table in docs/results.md.
"""

from pcl.studies.space import Ablation, Variant

ABLATION = Ablation(
    name="shared_backbone",
    question="Does kappa need a network of its own?",
    axis="backbone",
    baseline="independent",
    variants={"independent": Variant(), "shared": Variant({"encoder.backbone": "shared"})},
)
