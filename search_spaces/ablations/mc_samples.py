"""Monte-Carlo samples K of the loss: the paper's figure fig:mc.

    python launch/ablate.py --ablation mc_samples

Hardware, time, result: one H200, two seeds (five at 1 and 512), trained by `launch/reproduce.py`: `fig:mc` in
docs/results.md.
"""

from pcl.studies.space import Ablation, values

ABLATION = Ablation(
    name="mc_samples",
    question="How many samples does the estimate of the likelihood need?",
    axis="loss.n_samples",
    baseline="512",
    variants=values("loss.n_samples", 1, 4, 16, 64, 256, 512),
)
