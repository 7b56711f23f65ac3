"""ELK in the controlled experiment: the paper's grid of 12 cells.

    python launch/grid.py --space toy_elk

Hardware, time, result: the grid has not been run at full length. The published winner has been, on one H200 with five
seeds: `tab:bench_results` in docs/results.md.

Published winner: M = 1, kappa_pos not learned, joint training.

Under the profile `reference`, the cells with M = 0 are void: they have no repulsion, as in the released code. They run.
"""

from pcl.studies.space import SearchSpace, Stage, toy_axes

SPACE = SearchSpace(
    name="toy_elk",
    loss="elk",
    stages=(Stage("grid", toy_axes("loss.learn_kappa_pos")),),
    published={"M": "1", "loss.learn_kappa_pos": False, "training.phases": "joint"},
)
