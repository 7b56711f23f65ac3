"""Which mathematics a run is of. Imports nothing: those who only read records ask too."""

from collections.abc import Mapping

# Raised whenever the same configuration gives other numbers than before: old results are then not found again. It was
# not for the limits of kappa above 1e6 and of ranges that are only rounding, where the numbers before were wrong.
MATHS_VERSION = 3
MATHS = "pcl.maths"
_UNTAGGED = "3"  # of runs that were recorded before they were tagged


def is_current(tags: Mapping[str, str]) -> bool:
    """Whether a run would have the same numbers today.

    Example:
        >>> is_current({"pcl.maths": str(MATHS_VERSION)}), is_current({"pcl.maths": "2"})
        (True, False)
    """
    return tags.get(MATHS, _UNTAGGED) == str(MATHS_VERSION)
