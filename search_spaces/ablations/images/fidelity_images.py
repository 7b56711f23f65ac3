"""The image experiment's own settings where the text and the released code differ, changed alone.

    python launch/ablate.py --ablation fidelity_images --fidelity reference

The baseline is MCInfoNCE at the published winner's settings. Hardware, time, result: not yet run.
"""

from pcl.studies.space import Ablation, Variant, flipped_settings

ABLATION = Ablation(
    name="fidelity_images",
    question="Which of the differences between the image experiment's text and code matter?",
    axis="flipped",
    baseline="none",
    variants={"none": Variant(), **flipped_settings(task="images", is_own=True)},
    task="images",
    base={
        "task.labels": "soft", "encoder.dim": 8, "loss.kappa_pos": 16, "encoder.head_gain": 16,
        "training.phases": "mu kappa",
    },
)  # fmt: skip
