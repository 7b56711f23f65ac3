"""Number of negatives M of each anchor; for 0, one other sample of the batch is the negative.

    python launch/ablate.py --ablation n_negatives

Hardware, time, result: not yet run. In mu phases the negative comes from the batch, for any M.
"""

from pcl.studies.space import Ablation, negatives

ABLATION = Ablation(
    name="n_negatives",
    question="How many negatives does an anchor need?",
    axis="M",
    baseline="32",
    variants=negatives(0, 1, 8, 32, 128),
)
