"""Version of a run's numerics. Imports nothing, for readers of records."""

from collections.abc import Mapping

# Bump it when equal configurations give new numbers: old results are then not reused. It was not bumped for the limits
# of kappa above 1e6 and of ranges that are only rounding, where the numbers before were wrong.
MATHS_VERSION = 3
MATHS = "pcl.maths"
_UNTAGGED = "3"  # version of runs that were recorded before the tag existed


def is_current(tags: Mapping[str, str]) -> bool:
    """Return whether a run has the current numerics version.

    Example:
        >>> is_current({"pcl.maths": str(MATHS_VERSION)}), is_current({"pcl.maths": "2"})
        (True, False)
    """
    return tags.get(MATHS, _UNTAGGED) == str(MATHS_VERSION)
