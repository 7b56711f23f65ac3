"""HIB's own settings where the text and the released code differ, changed alone; `fidelity` has those of all losses.

    python launch/ablate.py --ablation fidelity_hib --fidelity reference

The baseline has the published winner's settings. Hardware, time, result: not yet run.
"""

from pcl.studies.space import Ablation, Variant, flipped_settings

ABLATION = Ablation(
    name="fidelity_hib",
    question="Which of the differences between HIB's text and code matter?",
    axis="flipped",
    baseline="none",
    variants={"none": Variant(), **flipped_settings("hib", is_own=True)},
    loss="hib",
    base={"training.negatives": "in_batch", "training.phases": "joint"},
)
