"""ELK's own settings where the text and the released code differ, changed alone; `fidelity` has those of all losses.

    python launch/ablate.py --ablation fidelity_elk --fidelity reference

The baseline has the published winner's settings. There `loss.negatives` has no effect: it needs M = 0, which is
`--set training.negatives=in_batch`. Hardware, time, result: not yet run.
"""

from pcl.studies.space import Ablation, Variant, flipped_settings

ABLATION = Ablation(
    name="fidelity_elk",
    question="Which of the differences between ELK's text and code matter?",
    axis="flipped",
    baseline="none",
    variants={"none": Variant(), **flipped_settings("elk", is_own=True)},
    loss="elk",
    base={"training.n_negatives": 1, "training.phases": "joint"},
)
