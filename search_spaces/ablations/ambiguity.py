"""Ambiguity of the inputs: the paper's tab:toy_correctsetups.

    python launch/ablate.py --ablation ambiguity

Hardware, time, result: one H200, five seeds, trained by `launch/reproduce.py`: the table in docs/results.md. If the
truth is a point mass, kappa-hat has to diverge; such trials end early if `training.kappa_limit` is finite.
"""

from pcl.studies.space import Ablation, Variant

ABLATION = Ablation(
    name="ambiguity",
    question="Are posteriors recovered whatever their concentration?",
    axis="ambiguity",
    baseline="ambiguous",
    variants={
        "ambiguous": Variant(),
        "clear": Variant({"task.kappa_min": 64, "task.kappa_max": 128}),
        "injective": Variant({"task.family": "dirac"}),
    },
)
