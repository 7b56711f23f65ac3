"""What people read of a trial's settings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # which imports torch, that readers of records do without
    from pcl.config.run_config import Plain


def label(varied: "Mapping[str, Plain]") -> str:
    """Values by axis in a line, each by the last part of its path."""
    return " ".join(f"{axis.rpartition('.')[2]}={shown(value)}" for axis, value in varied.items())


def shown(value: "Plain") -> str:
    """A value for people, who have no use for the last digits of one that was drawn."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{value:.4g}" if isinstance(value, float) and len(text) > 8 else text
