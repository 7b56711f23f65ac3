"""The recipe of the profile `exact` on CIFAR-10H's soft labels: phases, and the concentration of the partners.

    python launch/grid.py --space cifar_exact --fidelity exact --seeds 1 --no-finalize

Hardware, time, result: one H200, CIFAR-10H, fold 1, the three cells of kappa_pos = 16, 202 to 310 s each beside other
trainings, before the loss was fused. By the best evaluation they are alike (crop correlations 0.638, 0.638 and 0.629),
and all three keep most of both correlations to the end (docs/exact.md). kappa_pos = 64 is not yet run.

kappa_pos is also the gain of the last layer's initialisation, as in all spaces of CIFAR.
"""

from pcl.studies.space import Objective, SearchSpace, Stage, tied_axis

SPACE = SearchSpace(
    name="cifar_exact",
    loss="mc_info_nce",
    task="images",
    base={"task.labels": "soft"},
    stages=(
        Stage("grid", {
            "training.phases": ("mu kappa", "joint", "mu joint"),
            "kappa_pos": tied_axis(16, 64, paths=("loss.kappa_pos", "encoder.head_gain")),
        }),
    ),
    objective=Objective("val/crop_rank_corr"),
)  # fmt: skip
