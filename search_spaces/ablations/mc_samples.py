"""Monte-Carlo samples K of the loss: the paper's figure fig:mc.

    python launch/ablate.py --ablation mc_samples

Hardware, time, result: one H200, seeds 4 to 8, trained by `launch/reproduce.py --figure mc`, 386 s for K = 1, 4, 16 and
64 side by side: docs/results.md.
"""

from pcl.studies.space import Ablation, values

ABLATION = Ablation(
    name="mc_samples",
    question="How many samples does the estimate of the likelihood need?",
    axis="loss.n_samples",
    baseline="512",
    variants=values("loss.n_samples", 1, 4, 16, 64, 256, 512),
)
