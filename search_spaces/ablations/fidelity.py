"""Every place where the text, the released code and the theorem part, flipped alone.

    python launch/ablate.py --ablation fidelity --fidelity reference

The baseline is the profile itself. A variant has one setting at another profile's value; what is the profile's own, or
not possible in it, is left out and said. Hardware, time, result: not yet run.
"""

from pcl.studies.space import Ablation, Variant, flipped_settings

ABLATION = Ablation(
    name="fidelity",
    question="Which of the differences between text, code and theorem matter?",
    axis="flipped",
    baseline="none",
    variants={"none": Variant(), **flipped_settings()},
)
