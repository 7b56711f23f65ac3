"""Short texts for a trial's settings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # imports torch, which readers of records do without
    from pcl.config.run_config import Plain


def label(varied: "Mapping[str, Plain]") -> str:
    """Return the values of all axes in a line, each after the last part of its path."""
    return " ".join(f"{axis.rpartition('.')[2]}={shown(value)}" for axis, value in varied.items())


def shown(value: "Plain") -> str:
    """Return a value as text, without the last digits of one that was drawn."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{value:.4g}" if isinstance(value, float) and len(text) > 8 else text
