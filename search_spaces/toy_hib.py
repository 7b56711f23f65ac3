"""HIB in the controlled experiment: the paper's grid of 12 cells, and then, at the best of them, 36 cells of a and b.

    python launch/grid.py --space toy_hib

Hardware, time, result: the grid has not been run at full length. The published winner has been, on one H200 with five
seeds: `tab:bench_results` in docs/results.md.

Published winner: M = 0, kappa_pos not learned, joint training, a = 1, b = 0.

HIB's formula has no kappa_pos: the axis decides instead whether its scale a is learned, as in the released code. The
first stage has a = 1 and b = 0, the loss's defaults.
"""

from pcl.studies.space import SearchSpace, Stage, toy_axes

SPACE = SearchSpace(
    name="toy_hib",
    loss="hib",
    stages=(
        Stage("negatives and phases", toy_axes("loss.learn_a")),
        Stage("a and b", {"loss.a": (0.5, 1, 2, 4), "loss.b": (-8, -4, -2, -1, 0, 1, 2, 4, 8)}),
    ),
    published={"M": "0", "loss.learn_a": False, "training.phases": "joint", "loss.a": 1, "loss.b": 0},
)
