"""HIB on CIFAR-10H's soft labels: the paper's grid of 36 cells, and then, at the best of them, 20 cells of a and b.

    python launch/grid.py --space cifar_hib

Hardware, time, result: the grid has not been run. The published winner has been, on one H200 and five folds:
tab:bench_cifar in docs/results.md.

Published winner: D = 8, M = 0, kappa_pos = 32, mu before kappa, a = 2, b = 1.

HIB's formula has no kappa_pos. In all of the released scripts the same number is also the gain of the last layer's
initialisation, hence the scale of kappa-hat before training: this is the axis's only effect here. The first stage has
a = 1 and b = 0, the loss's defaults.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, image_axes

SPACE = SearchSpace(
    name="cifar_hib",
    loss="hib",
    task="images",
    base={"task.labels": "soft"},
    stages=(
        Stage("dimension, negatives and phases", image_axes("encoder.head_gain")),
        Stage("a and b", {"loss.a": (0.5, 1, 2, 4), "loss.b": (-2, -1, 0, 1, 2)}),
    ),
    objective=Objective("val/crop_rank_corr"),
    published={"encoder.dim": 8, "M": "0", "kappa_pos": "32", "training.phases": "mu kappa", "loss.a": 2, "loss.b": 1},
)
