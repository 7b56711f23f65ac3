"""The recipe of the profile `exact` on CIFAR-10H's soft labels: augmentation and phases.

    python launch/grid.py --space cifar_exact --fidelity exact --seeds 1 --no-finalize --data cifar10h

A run ends with its last evaluation: validation images choose nothing within a run, only between cells. The
concentration of the partners, 16, comes from an earlier grid; 64 was worse in both correlations (docs/exact.md).

Hardware, time, result: one H200, fold 1, 112 s for these six and the same six with `--set training.n_batches=4096`,
four at a time, from a backbone with 94.03%. The best by the crop correlation at the end is crop_flip with "mu joint"
(0.653), which is the recipe; 4,096 batches without augmentation have 0.651, resized crops at most 0.568
(docs/exact.md).
"""

from pcl.studies.space import Objective, SearchSpace, Stage

SPACE = SearchSpace(
    name="cifar_exact",
    loss="mc_info_nce",
    task="images",
    base={"task.labels": "soft", "loss.kappa_pos": 16, "encoder.head_gain": 16, "training.keep": "last"},
    stages=(
        Stage("grid", {
            "task.augmentation": ("crop_flip", "random_resized_crop", "none"),
            "training.phases": ("joint", "mu joint"),
        }),
    ),
    objective=Objective("val/crop_rank_corr"),
)  # fmt: skip
