"""MCInfoNCE on features given as an array: 8 cells of dimension, kappa_pos and learning rate of a perceptron.

    python launch/grid.py --space features_mcinfonce --data features.npz

This is the cheapest way to start: features of a frozen network, computed once, with labels and, if annotators disagree,
their shares.

mu and kappa train together: a run ends with its best evaluation by Recall@1, which may come before a kappa phase.

Hardware, time, result: the grid has not been run; docs/images.md has one cell on three seeds.
"""

from pcl.studies.space import Objective, SearchSpace, Stage

SPACE = SearchSpace(
    name="features_mcinfonce",
    loss="mc_info_nce",
    task="features",
    base={
        "encoder.kappa_link": "one_plus_exp",
        "encoder.kappa_width": "as_mu",
        "encoder.sampler": "exact",
        "encoder.sampler_gradient": "exact",
        "training.phases": "joint",
    },
    stages=(Stage("grid", {"encoder.dim": (8, 16), "loss.kappa_pos": (16, 32), "training.lr": (1e-4, 1e-3)}),),
    objective=Objective("val/recall_at_1"),
)
