"""Axes that the paper's grids share."""

from pcl.studies.space import Variants, negatives_axis, tied_axis

Axes = dict[str, Variants | tuple[bool | int | str, ...]]


def toy_axes(learned: str) -> Axes:
    """Return the 12 cells of the controlled experiment; `learned` is the path that says whether a scale is learned."""
    return {"M": negatives_axis(0, 1, 32), learned: (True, False), "training.phases": ("mu kappa", "joint")}


def image_axes(*kappa_paths: str) -> Axes:
    """Return the 36 cells of CIFAR; kappa_pos sets all of `kappa_paths`."""
    return {
        "encoder.dim": (8, 16),
        "M": negatives_axis(0, 1, 32),
        "kappa_pos": tied_axis(16, 32, 64, paths=kappa_paths),
        "training.phases": ("mu kappa", "joint"),
    }
