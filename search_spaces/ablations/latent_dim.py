"""Dimension of truth, inputs and encoder: the paper's figure fig:highdim.

    python launch/ablate.py --ablation latent_dim

Hardware, time, result: one H200, five seeds up to 56, and one seed of numerics 3 at 64; trained by
`launch/reproduce.py`: `fig:highdim` in docs/results.md. From 32 on, samples are fewer and batches smaller, as in the
paper. Under `reference` this holds for all dimensions, and 64 also has 8 negatives, as in the release's scripts. Each
dimension has its own truth: no two variants share their generators.
"""

from pcl.studies.space import Ablation, Variant

_SMALLER = {"loss.n_samples": 256, "training.batch_size": 256}

ABLATION = Ablation(
    name="latent_dim",
    question="Does recovery last in more dimensions?",
    axis="latent_dim",
    baseline="10",
    variants={
        str(dim): Variant(
            {"task.dim": dim, "task.dim_x": dim, "encoder.dim": dim},
            settings_at_paper=_SMALLER if dim >= 32 else {},
            in_scripts={"training.n_negatives": 8} if dim == 64 else _SMALLER,
        )
        for dim in (10, 16, 32, 40, 48, 56, 64)
    },
)
