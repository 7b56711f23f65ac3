"""Sources of negatives."""

from enum import Enum


class Negatives(Enum):
    """The source of an anchor's negatives."""

    DRAWN = "drawn"  # each anchor's own
    SHARED = "shared"  # one set for all anchors of a batch
    # All that the batch's positives were chosen from. The loss in its form for infinitely many negatives is then the
    # exact likelihood of that choice, for any number; with others, the truth is its optimum only for infinitely many.
    POOL = "pool"
    IN_BATCH = "in_batch"  # the positive of another anchor: "M = 0" in the paper's tables

    @property
    def are_common(self) -> bool:
        """True if all anchors of a batch have the same negatives."""
        return self in (Negatives.SHARED, Negatives.POOL)
