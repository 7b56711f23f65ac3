"""Families of the true posteriors, while the encoder is always a vMF: the paper's tab:toy_distrfamily.

    python launch/ablate.py --ablation posterior_family

Hardware, time, result: one H200, five seeds, trained by `launch/reproduce.py`: the table in docs/results.md. kappa has
a different meaning in each family; compare the spread.
"""

from pcl.studies.space import Ablation, values

ABLATION = Ablation(
    name="posterior_family",
    question="What if the true posteriors are no vMFs?",
    axis="task.family",
    baseline="vmf",
    variants=values("task.family", "vmf", "gaussian", "laplace"),
    metrics=(
        "eval/spread100_rank_corr", "eval/spread100_mae", "eval/spread_rank_corr", "eval/spread_mae",
        "eval/mu_rank_corr", "eval/mu_mae",
    ),
)  # fmt: skip
