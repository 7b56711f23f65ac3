"""How ambiguous inputs are: the paper's tab:toy_correctsetups.

    python launch/ablate.py --ablation ambiguity

Hardware, time, result: one H200, five seeds, trained by `launch/reproduce.py`: the table in the README. Where the
truth is a point, kappa-hat has to run away: such trials may end early.
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
