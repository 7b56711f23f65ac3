"""The recipe of the profile `exact` on CIFAR-10H's soft labels: length, augmentation and phases.

    python launch/grid.py --space cifar_exact --fidelity exact --seeds 1 --no-finalize --data cifar10h

A run ends with its last evaluation: nothing of it is chosen by the validation images, which then tell cells apart. The
concentration of the partners, 16, is that of an earlier grid; 64 was worse in both correlations (docs/exact.md).

Hardware, time, result: one H200, fold 1, 112 s for the twelve, four at a time, from a backbone with 94.03%. The best by
the crop correlation at the end is 1,024 batches, crop_flip, "mu joint" (0.653), which is the recipe; 4,096 batches
without augmentation have 0.651, enlarged parts at most 0.568 (docs/exact.md).
"""

from pcl.studies.space import Objective, SearchSpace, Stage

SPACE = SearchSpace(
    name="cifar_exact",
    loss="mc_info_nce",
    task="images",
    base={
        "task.labels": "soft", "loss.kappa_pos": 16, "encoder.head_gain": 16, "training.keep": "last",
        "training.eval_every": 256,
    },
    stages=(
        Stage("grid", {
            "training.n_batches": (1024, 4096),
            "task.augmentation": ("crop_flip", "enlarged_part", "none"),
            "training.phases": ("joint", "mu joint"),
        }),
    ),
    objective=Objective("val/crop_rank_corr"),
)  # fmt: skip
