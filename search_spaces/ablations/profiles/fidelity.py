"""Every setting where the text, the released code and the theorem differ, changed alone.

    python launch/ablate.py --ablation fidelity --fidelity reference

The baseline is the profile itself. Each variant takes one setting from another profile; values that the profile
already has or cannot have are left out, and the plan says so. Hardware, time, result: not yet run.
"""

from pcl.studies.space import Ablation, Variant, flipped_settings

ABLATION = Ablation(
    name="fidelity",
    question="Which of the differences between text, code and theorem matter?",
    axis="flipped",
    baseline="none",
    variants={"none": Variant(), **flipped_settings()},
)
