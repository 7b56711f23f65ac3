"""Dimension of the encoder where the truth has 10 dimensions: the paper's figure fig:encoder_size.

    python launch/ablate.py --ablation encoder_dim

Hardware, time, result: one H200, five seeds, all but 128; trained by `launch/reproduce.py`: `fig:encoder_size` in
docs/results.md. The two largest have fewer samples, as in the paper, and the largest a smaller batch. Under `reference`
the three largest have 8 negatives, as in the release's scripts.
"""

from pcl.studies.space import Ablation, Variant, values

_FEWER = {"training.n_negatives": 8}

ABLATION = Ablation(
    name="encoder_dim",
    question="What if the encoder's dimension is not the truth's?",
    axis="encoder.dim",
    baseline="10",
    variants={
        **values("encoder.dim", 4, 8, 10, 16),
        "32": Variant({"encoder.dim": 32}, in_scripts=_FEWER),
        "64": Variant({"encoder.dim": 64}, settings_at_paper={"loss.n_samples": 256}, in_scripts=_FEWER),
        "128": Variant(
            {"encoder.dim": 128},
            settings_at_paper={"loss.n_samples": 256, "training.batch_size": 256},
            in_scripts=_FEWER,
        ),
    },
)
