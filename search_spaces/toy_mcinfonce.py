"""MCInfoNCE in the controlled experiment: the paper's grid of 12 cells.

    python launch/grid.py --space toy_mcinfonce

Hardware, time, result: the grid has not been run at full length. The published winner has been, on one H200 with five
seeds: `tab:bench_results` in docs/results.md.

Published winner: M = 32, kappa_pos not learned, mu before kappa.

Under the profile `exact`, which corresponds to infinitely many negatives, cells with M = 0 are not possible.
"""

from pcl.studies.space import SearchSpace, Stage, toy_axes

SPACE = SearchSpace(
    name="toy_mcinfonce",
    loss="mc_info_nce",
    stages=(Stage("grid", toy_axes("loss.learn_kappa_pos")),),
    published={"M": "32", "loss.learn_kappa_pos": False, "training.phases": "mu kappa"},
)
