"""ELK on CIFAR-10H's soft labels: the paper's grid of 36 cells.

    python launch/grid.py --space cifar_elk

Hardware, time, result: the grid has not been run. The published winner has been, on one H200 and five folds:
tab:bench_cifar in docs/results.md.

Published winner: D = 8, M = 1, kappa_pos = 32, joint training.

kappa_pos is also the gain of the last layer's initialisation, hence the scale of kappa-hat before training, as in all
of the released scripts.

Under the profile `reference`, the cells with M = 0 are void: they have no repulsion, as in the released code.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, image_axes

SPACE = SearchSpace(
    name="cifar_elk",
    loss="elk",
    task="images",
    base={"task.labels": "soft"},
    stages=(Stage("grid", image_axes("loss.kappa_pos", "encoder.head_gain")),),
    objective=Objective("val/crop_rank_corr"),
    published={"encoder.dim": 8, "M": "1", "kappa_pos": "32", "training.phases": "joint"},
)
