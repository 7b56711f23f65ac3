"""Factors of the recipe `exact`, all combinations: anchors, negatives, joint training, partners.

    python launch/ablate.py --ablation exact_factors --fidelity exact --seeds 4,5,6,7,8

- Anchors are guided, or drawn from the posterior alone.
- Negatives are the pool that the positive was chosen from, or shared by the batch.
- Training ends jointly, or only alternates.
- Partners are integrated in closed form, or drawn.

Guided anchors need integrated partners: their four combinations with drawn ones are left out, and the plan says so. For
the profile `exact` only.

Hardware, time, result: one H200, seeds 4 to 8, 710 and 872 s beside other trainings. The recipe has a kappa MAE of 0.37
and a rank of 0.988. Without the pool it has 0.72 and 0.984, without joint training 1.97 and 0.577, without guided
anchors 18.2 and 0.938, and without these three and integrated partners 7.69 and 0.364; the best constant kappa has an
MAE of 2.2. docs/exact.md has all twelve with paired intervals. At the scale `quick`: 27 minutes on two CPU cores.
"""

from itertools import product

from pcl.studies.space import Ablation, Variant

_PHASES = {"joint": "mu kappa joint:4", "alternating": "mu kappa"}
_CELLS = list(product(("guided", "posterior"), ("pool", "shared"), _PHASES, ("integrated", "drawn")))

ABLATION = Ablation(
    name="exact_factors",
    question="What does each part of the recipe buy?",
    axis="factors",
    baseline="guided pool joint integrated",
    variants={
        " ".join(cell): Variant({
            "loss.anchors": anchors, "training.negatives": negatives, "training.mu_phase_negatives": negatives,
            "training.phases": _PHASES[phases], "loss.partners": partners,
        })
        for cell in _CELLS
        for anchors, negatives, phases, partners in [cell]
    },
)  # fmt: skip
