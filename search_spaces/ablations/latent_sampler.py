"""The released or the exact sampler of the vMF in 40 dimensions: does it explain the drop in the paper's fig:highdim?

    python launch/ablate.py --ablation latent_sampler

The released sampler's draws are more spread out than their kappa says, and increasingly so with the dimension. Truth
and encoder change samplers together. For another dimension, such as 64: `--set task.dim=64 --set task.dim_x=64 --set
encoder.dim=64`.

Hardware, time, result: one H200, two seeds, 365 s: mu is better with the exact sampler (rank 0.46 instead of 0.22),
but still too poor for kappa, whose rank is 0.17 instead of 0.07. With two seeds both intervals include zero.
"""

from pcl.studies.space import Ablation, Variant

_DIM = 40
_SMALLER = {"loss.n_samples": 256, "training.batch_size": 256}  # as in fig:highdim, one of whose cells is the baseline

ABLATION = Ablation(
    name="latent_sampler",
    question="Is the release's sampler why recovery fails in many dimensions?",
    axis="sampler",
    baseline="released",
    base={"task.dim": _DIM, "task.dim_x": _DIM, "encoder.dim": _DIM},
    variants={
        sampler: Variant({"task.sampler": sampler, "encoder.sampler": sampler}, settings_at_paper=_SMALLER)
        for sampler in ("released", "exact")
    },
)
