"""Losses in the controlled experiment, each at its published winner's settings: the paper's tab:bench_results.

    python launch/ablate.py --ablation loss

Hardware, time, result: one H200, five seeds, without InfoNCE, trained by `launch/reproduce.py`: the table in the
README. InfoNCE has no kappa and so no kappa metrics; its row is the paper's tab:infonce.
"""

from pcl.studies.space import Ablation, Variant

ABLATION = Ablation(
    name="loss",
    question="Which loss recovers the posteriors?",
    axis="loss",
    baseline="MCInfoNCE",
    variants={
        "MCInfoNCE": Variant(),
        "HIB": Variant({"training.negatives": "in_batch", "training.phases": "joint"}, loss="hib"),
        "ELK": Variant({"training.n_negatives": 1, "training.phases": "joint"}, loss="elk"),
        "InfoNCE": Variant(loss="info_nce"),
    },
)
