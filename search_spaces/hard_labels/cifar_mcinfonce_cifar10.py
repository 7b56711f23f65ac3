"""MCInfoNCE on CIFAR-10's hard labels: the paper's grid of 36 cells.

    python launch/grid.py --space cifar_mcinfonce_cifar10

Hardware, time, result: the grid has not been run. The published winner has been, on one H200 and five folds:
tab:cifar_dataset in docs/results.md.

Published winner: D = 8, M = 0, kappa_pos = 64, mu before kappa.

kappa_pos is also the gain of the last layer's initialisation, hence the scale of kappa-hat before training, as in all
of the released scripts.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, image_axes

SPACE = SearchSpace(
    name="cifar_mcinfonce_cifar10",
    loss="mc_info_nce",
    task="images",
    base={"task.labels": "cifar10_hard"},
    stages=(Stage("grid", image_axes("loss.kappa_pos", "encoder.head_gain")),),
    objective=Objective("val/crop_rank_corr"),
    published={"encoder.dim": 8, "M": "0", "kappa_pos": "64", "training.phases": "mu kappa"},
)
