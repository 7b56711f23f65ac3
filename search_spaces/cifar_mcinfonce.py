"""MCInfoNCE on CIFAR-10H's soft labels: the paper's grid of 36 cells.

    python launch/grid.py --space cifar_mcinfonce

Hardware, time, result: not yet run at full length. Published winner: D = 8, M = 32, kappa_pos = 16, mu before kappa.
With `--scale quick` on the embedded images, two CPU cores beside other work, seed 1: 20 minutes with the pretraining;
crop correlations of the validation images from 0.15 to 0.44, Recall@1 above 0.9, D = 8 above D = 16 on average, first
D = 8, M = 0, kappa_pos = 16, mu before kappa. A third of the cells were best at their first evaluation.

kappa_pos is also the gain of the last layer's initialisation, hence the scale of kappa-hat before training, as in all
of the released scripts.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, negatives_axis, tied_axis

SPACE = SearchSpace(
    name="cifar_mcinfonce",
    loss="mc_info_nce",
    task="images",
    base={"task.labels": "soft"},
    stages=(
        Stage(
            "grid",
            {
                "encoder.dim": (8, 16),
                "M": negatives_axis(0, 1, 32),
                "kappa_pos": tied_axis(16, 32, 64, paths=("loss.kappa_pos", "encoder.head_gain")),
                "training.phases": ("mu kappa", "joint"),
            },
        ),
    ),
    objective=Objective("val/crop_rank_corr"),
    published={"encoder.dim": 8, "M": "32", "kappa_pos": "16", "training.phases": "mu kappa"},
)
