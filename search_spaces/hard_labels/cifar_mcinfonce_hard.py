"""MCInfoNCE on CIFAR-10H's most voted classes: the paper's grid of 36 cells.

    python launch/grid.py --space cifar_mcinfonce_hard

Hardware, time, result: the grid has not been run. The published winner has been, on one H200 and five folds:
tab:cifar_dataset in docs/results.md.

Published winner: D = 16, M = 0, kappa_pos = 16, joint training.

kappa_pos is also the gain of the last layer's initialisation, hence the scale of kappa-hat before training, as in all
of the released scripts.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, image_axes

SPACE = SearchSpace(
    name="cifar_mcinfonce_hard",
    loss="mc_info_nce",
    task="images",
    base={"task.labels": "hard"},
    stages=(Stage("grid", image_axes("loss.kappa_pos", "encoder.head_gain")),),
    objective=Objective("val/crop_rank_corr"),
    published={"encoder.dim": 16, "M": "0", "kappa_pos": "16", "training.phases": "joint"},
)
