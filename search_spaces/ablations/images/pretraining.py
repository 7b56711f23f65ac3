"""Training from a pretrained backbone or from scratch: the paper's tab:cifar_pretraining.

    python launch/ablate.py --ablation pretraining

Hardware, time, result: one H200, CIFAR-10H, five folds, by `launch/reproduce.py --table cifar_pretraining`, 490 s a
variant while other trainings ran. From scratch, hardly anything is learned in 8,192 batches (docs/results.md).

Training from scratch has the schedule and augmentation that the paper gives for it; under `reference` at the scale
`paper` it has those of the release, which warms up in every phase and augments none of these images. At the scale
`smoke` nothing is pretrained, so only these two settings differ.
"""

from pcl.studies.space import Ablation, Variant

ABLATION = Ablation(
    name="pretraining",
    question="Does MCInfoNCE need a pretrained backbone?",
    axis="start",
    baseline="pretrained",
    task="images",
    base={
        "task.labels": "soft", "encoder.dim": 8, "loss.kappa_pos": 16, "encoder.head_gain": 16,
        "training.phases": "mu kappa",
    },
    variants={
        "pretrained": Variant(),
        "scratch": Variant(
            {"training.lr_schedule": "warm_up_cosine", "task.augmentation": "crop_flip"}, is_from_scratch=True,
            in_scripts={"training.lr_schedule": "phase_warm_up_cosine", "task.augmentation": "none"},
        ),
    },
)  # fmt: skip
