"""Soft and hard labels, each at its published winner's settings: the paper's tab:cifar_dataset.

    python launch/ablate.py --ablation labels

Hardware, time, result: one H200, CIFAR-10H, five folds, by `launch/reproduce.py --table cifar_dataset`, 376 to 488 s a
variant, all at the same time. Four of six numbers agree with the paper, two are better (docs/results.md). The paper
tuned each kind of labels, so other settings differ too.
"""

from pcl.studies.space import Ablation, Variant

ABLATION = Ablation(
    name="labels",
    question="Does MCInfoNCE need soft labels?",
    axis="labels",
    baseline="soft",
    task="images",
    variants={
        "soft": Variant({
            "task.labels": "soft", "encoder.dim": 8, "loss.kappa_pos": 16, "encoder.head_gain": 16,
            "training.phases": "mu kappa",
        }),
        "hard": Variant({
            "task.labels": "hard", "encoder.dim": 16, "training.negatives": "in_batch", "loss.kappa_pos": 16,
            "encoder.head_gain": 16, "training.phases": "joint",
        }),
        "CIFAR-10 hard": Variant({
            "task.labels": "cifar10_hard", "encoder.dim": 8, "training.negatives": "in_batch", "loss.kappa_pos": 64,
            "encoder.head_gain": 64, "training.phases": "mu kappa",
        }),
    },
)  # fmt: skip
