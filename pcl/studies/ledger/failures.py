"""Why runs failed, as their tags tell."""

from collections.abc import Mapping

CAUSE = "pcl.cause"


def first_line(error: BaseException) -> str:
    """Return the first line of an error, or its name where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def cause_of(tags: Mapping[str, str]) -> str:
    """Why a run failed, or nothing; of a trial with but one seed, without that seed's name.

    Example:
        >>> cause_of({"pcl.seed": "4", "pcl.cause": "seed 4: the loss is nan"}), cause_of({"pcl.seed": "4"})
        ('the loss is nan', '')
    """
    return tags.get(CAUSE, "").removeprefix(f"seed {tags.get('pcl.seed', '')}: ")
