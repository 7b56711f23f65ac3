"""Figures that go with the records. A Figure of its own has no state to share, as pyplot has."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike


def scatter(true: ArrayLike, predicted: ArrayLike, title: str, path: Path) -> None:
    """Plot predicted values against true ones into a file, with the diagonal.

    Axes are logarithmic where all values are positive and the true ones span more than a factor of 30.

    Args:
        true: (B,)
        predicted: (B,)
        title: Stands above.
        path: The file; its suffix says the format.
    """
    x, y = np.asarray(true, dtype=float).ravel(), np.asarray(predicted, dtype=float).ravel()
    if x.shape != y.shape:
        raise ValueError(f"As many true as predicted values must be given, but got {x.size} and {y.size}.")
    is_finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[is_finite], y[is_finite]
    figure = Figure(figsize=(4.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.scatter(x, y, s=6, alpha=0.35, linewidths=0, rasterized=True)
    if x.size:
        ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
        axes.plot(ends, ends, color="0.4", linewidth=1, linestyle="--", label="exact")
        axes.legend(frameon=False)
        if ends[0] > 0 and x.max() > 30 * x.min():
            axes.set_xscale("log")
            axes.set_yscale("log")
    axes.set(xlabel="true", ylabel="predicted", title=f"{title} (n = {x.size:,})")
    figure.savefig(path, dpi=110)


def pareto(
    points: ArrayLike, is_front: Sequence[bool], names: Sequence[str], path: Path, is_first_max: bool = True
) -> None:
    """Plot every objective but the first against the first, with the Pareto front on top, into a file.

    Of two objectives, the front is the edge of what trials have reached: steps, for nothing between them is known.

    Args:
        points: (B, number of objectives)
        is_front: (B,), whether a point is on the front.
        names: Of the objectives.
        path: The file; its suffix says the format.
        is_first_max: Whether the first objective is the better the larger it is.
    """
    values, chosen = np.asarray(points, dtype=float), np.asarray(is_front, dtype=bool)
    n_plots = len(names) - 1
    figure = Figure(figsize=(4.8 * n_plots, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for index in range(1, len(names)):
        axes = figure.add_subplot(1, n_plots, index)
        axes.scatter(values[~chosen, 0], values[~chosen, index], s=14, color="0.6", linewidths=0, label="trials")
        front = values[chosen][np.argsort(values[chosen, 0])]
        axes.plot(
            front[:, 0], front[:, index], "o-" if n_plots == 1 else "o", markersize=5, linewidth=1,
            drawstyle="steps-pre" if is_first_max else "steps-post", label="Pareto front",
        )  # fmt: skip
        axes.set(xlabel=names[0], ylabel=names[index])
        axes.legend(frameon=False)
    figure.suptitle(f"Pareto front: {chosen.sum()} of {len(values)} trials")
    figure.savefig(path, dpi=110)
