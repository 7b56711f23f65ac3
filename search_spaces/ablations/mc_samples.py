"""Monte-Carlo samples K of the loss: the paper's figure fig:mc.

    python launch/ablate.py --ablation mc_samples

Hardware, time, result: one H200, two seeds, in the README (`fig:mc`): 4 samples are enough for the order, 16 for the
size.
"""

from pcl.studies.ablation import Ablation, values

ABLATION = Ablation(
    name="mc_samples",
    question="How many samples does the estimate of the likelihood need?",
    axis="loss.n_samples",
    baseline="512",
    variants=values("loss.n_samples", 1, 4, 16, 64, 256, 512),
)
