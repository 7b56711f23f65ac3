"""Declarations of what is searched: spaces, axes, ranges, ablations, and trials.

Users' files import from here: `from pcl.studies.space import SearchSpace, Stage`. Names are loaded on first use:
readers of records need only `labels` and `numerics_version`, which import no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcl.studies.space.ablation import Ablation, Variant, flipped_settings, negatives, values
    from pcl.studies.space.axes import Variants, image_axes, negatives_axis, tied_axis, toy_axes
    from pcl.studies.space.ranges import integers, log_uniform, uniform
    from pcl.studies.space.search_space import Mode, Objective, SearchSpace, Stage

_MODULES = {
    "Ablation": "ablation",
    "Mode": "search_space",
    "Objective": "search_space",
    "SearchSpace": "search_space",
    "Stage": "search_space",
    "Variant": "ablation",
    "Variants": "axes",
    "flipped_settings": "ablation",
    "image_axes": "axes",
    "integers": "ranges",
    "log_uniform": "ranges",
    "negatives": "ablation",
    "negatives_axis": "axes",
    "tied_axis": "axes",
    "toy_axes": "axes",
    "uniform": "ranges",
    "values": "ablation",
}

__all__ = [
    "Ablation", "Mode", "Objective", "SearchSpace", "Stage", "Variant", "Variants", "flipped_settings",
    "image_axes", "integers", "log_uniform", "negatives", "negatives_axis", "tied_axis", "toy_axes", "uniform",
    "values",
]  # fmt: skip


def __getattr__(name: str) -> object:
    """Import a public name on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
