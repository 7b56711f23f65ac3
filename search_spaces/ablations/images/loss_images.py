"""Losses on CIFAR-10H, each at its published winner's settings: the paper's tab:bench_cifar.

    python launch/ablate.py --ablation loss_images

Hardware, time, result: one H200, CIFAR-10H, five folds, by `launch/reproduce.py --table bench_cifar`, 265 to 331 s a
loss, all three at the same time: five of six numbers agree with the paper (docs/results.md). InfoNCE was trained by
`--table infonce`.
"""

from pcl.studies.space import Ablation, Variant

ABLATION = Ablation(
    name="loss_images",
    question="Which loss's certainty is that of people and of crops?",
    axis="loss",
    baseline="MCInfoNCE",
    task="images",
    base={"task.labels": "soft", "encoder.dim": 8},
    variants={
        "MCInfoNCE": Variant({"loss.kappa_pos": 16, "encoder.head_gain": 16, "training.phases": "mu kappa"}),
        "HIB": Variant(
            {
                "training.negatives": "in_batch", "encoder.head_gain": 32, "training.phases": "mu kappa", "loss.a": 2,
                "loss.b": 1,
            },
            loss="hib",
        ),
        "ELK": Variant(
            {"training.n_negatives": 1, "loss.kappa_pos": 32, "encoder.head_gain": 32, "training.phases": "joint"},
            loss="elk",
        ),
        "InfoNCE": Variant(loss="info_nce"),
    },
)  # fmt: skip
