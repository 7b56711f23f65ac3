"""The recipe of the profile `exact` on CIFAR-10H's soft labels: phases, and the concentration of the partners.

    python launch/grid.py --space cifar_exact --fidelity exact --seeds 1 --no-finalize

Hardware, time, result: one H200, CIFAR-10H, fold 1, 392 to 428 s a cell beside four other trainings. kappa_pos = 16
with "mu kappa" wins by the best evaluation (crop correlation 0.705; "mu joint" 0.693, all others 0.631 to 0.658), but
another backbone gave it 0.638. At the end kappa_pos = 16 keeps most of both correlations with all three schedules;
kappa_pos = 64 is worse in both (docs/exact.md).

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
