"""InfoNCE in the controlled experiment: 3 cells, selected by the rank correlation of mu.

    python launch/grid.py --space toy_infonce

Hardware, time, result: M = 0 was run on one H200, five seeds: tab:infonce in docs/results.md. Published winner: none;
the paper tuned InfoNCE but does not say over which grid, so M has the values of the other losses. There is no kappa to
learn: all training is one mu phase, and M applies to its negatives.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, negatives_axis

SPACE = SearchSpace(
    name="toy_infonce",
    loss="info_nce",
    stages=(Stage("grid", {"M": negatives_axis(0, 1, 32, source="training.mu_phase_negatives")}),),
    objective=Objective("eval/mu_rank_corr"),
)
