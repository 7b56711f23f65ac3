"""MCInfoNCE on CIFAR-10's hard labels: the paper's grid of 36 cells.

    python launch/grid.py --space cifar_mcinfonce_cifar10

Hardware, time, result: not yet run. Published winner: D = 8, M = 0, kappa_pos = 64, mu before kappa.

kappa_pos is also the gain of the last layer's initialisation, hence the scale of kappa-hat before training, as in all
of the released scripts.

Under the profile `exact`, which stands for infinitely many negatives, the cells with M = 0 are not possible.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, Variants, negatives_axis

SPACE = SearchSpace(
    name="cifar_mcinfonce_cifar10",
    loss="mc_info_nce",
    task="images",
    base={"task.labels": "cifar10_hard"},
    stages=(
        Stage(
            "grid",
            {
                "encoder.dim": (8, 16),
                "M": negatives_axis(0, 1, 32),
                "kappa_pos": Variants(
                    {
                        "16": {"loss.kappa_pos": 16, "encoder.head_gain": 16},
                        "32": {"loss.kappa_pos": 32, "encoder.head_gain": 32},
                        "64": {"loss.kappa_pos": 64, "encoder.head_gain": 64},
                    }
                ),
                "training.phases": ("mu kappa", "joint"),
            },
        ),
    ),
    objective=Objective("val/crop_rank_corr"),
    published={"encoder.dim": 8, "M": "0", "kappa_pos": "64", "training.phases": "mu kappa"},
)
