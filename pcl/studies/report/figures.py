"""Figures of a study: scatter plots, Pareto fronts, posteriors."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from scipy.special import i0e

from pcl.studies.report.predictions import Predictions
from pcl.studies.results.parameter_effects import is_wide


def scatter(true: ArrayLike, predicted: ArrayLike, title: str, path: Path) -> None:
    """Plot predicted values (B,) against true ones (B,) into a file, with the diagonal.

    Axes are logarithmic where all values are positive and span decades: see `is_wide`.
    """
    x, y = np.asarray(true, dtype=float).ravel(), np.asarray(predicted, dtype=float).ravel()
    if x.shape != y.shape:
        raise ValueError(f"As many true as predicted values must be given, but got {x.size} and {y.size}.")
    is_finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[is_finite], y[is_finite]
    figure = _figure(4.5, 4.5, layout=None)  # its margins are known; computing them would double the time
    axes = figure.add_axes((0.17, 0.12, 0.79, 0.8))
    axes.scatter(x, y, s=6, alpha=0.35, linewidths=0, rasterized=True)
    if x.size:
        ends = [float(min(x.min(), y.min())), float(max(x.max(), y.max()))]
        axes.plot(ends, ends, color="0.4", linewidth=1, linestyle="--", label="exact")
        axes.legend(frameon=False)
        if is_wide(ends):
            axes.set_xscale("log")
            axes.set_yscale("log")
    axes.set(xlabel="true", ylabel="predicted", title=f"{title} (n = {x.size:,})")
    figure.savefig(path, dpi=110)


def reliability(levels: ArrayLike, covered: ArrayLike, title: str, path: Path) -> None:
    """Plot the share of true latents in credible caps, (L,), against the caps' levels, (L,), with the diagonal."""
    figure = _figure(4.5, 4.5, layout=None)
    axes = figure.add_axes((0.17, 0.12, 0.79, 0.8))
    axes.plot([0, 1], [0, 1], color="0.4", linewidth=1, linestyle="--", label="exact")
    axes.plot(np.asarray(levels, dtype=float), np.asarray(covered, dtype=float), "o-", markersize=4, linewidth=1)
    axes.set(xlabel="level of the credible cap", ylabel="true latents in it", title=title, xlim=(0, 1), ylim=(0, 1))
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def pareto(
    points: ArrayLike, is_front: Sequence[bool], names: Sequence[str], path: Path, is_first_max: bool = True
) -> None:
    """Plot every objective but the first against the first, with the Pareto front on top, into a file.

    With two objectives, the front is drawn as steps: nothing is known between trials.

    Args:
        points: (B, number of objectives)
        is_front: (B,), whether a point is on the front.
        names: Names of the objectives.
        path: The file; its suffix sets the format.
        is_first_max: Whether larger values of the first objective are better.
    """
    values, chosen = np.asarray(points, dtype=float), np.asarray(is_front, dtype=bool)
    n_plots = len(names) - 1
    figure = _figure(4.8 * n_plots, 4.2)
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


def posteriors(found: Predictions, title: str, mark: str, path: Path, n_shown: int = 5) -> None:
    """Plot densities of a few true and predicted posteriors on the circle, the latter aligned with the truth."""
    mu_true, mu = (tensor.double().numpy() for tensor in (found.mu_true, found.mu))
    left, _, right = np.linalg.svd(mu.T @ mu_true)  # the rotation or reflection that fits best
    places = _apart(mu_true, n_shown)
    angle = np.linspace(0, 2 * np.pi, 721)
    figure = _figure(8.4, 4.3)
    largest = max(float(kappa[places].max()) for kappa in (found.kappa_true, found.kappa))
    panels = (("true", mu_true, found.kappa_true), ("predicted, aligned", mu @ (left @ right), found.kappa))
    for place, (name, modes, kappa) in enumerate(panels, start=1):
        axes: Any = figure.add_subplot(1, 2, place, projection="polar")
        for i in places:
            concentration = float(kappa[i])
            density = np.exp(concentration * (np.cos(angle - math.atan2(modes[i, 1], modes[i, 0])) - 1))
            axes.plot(angle, density / (2 * np.pi * i0e(concentration)), linewidth=1.5)
        axes.set_yticks([])
        axes.set_ylim(0, 1.05 / (2 * np.pi * i0e(largest)))
        axes.set_title(name)
    figure.suptitle(f"{title}, seed {found.seed}{mark}")
    figure.savefig(path, dpi=110)


def _apart(modes: "np.ndarray[Any, Any]", n: int) -> list[int]:
    """Return points that are spread evenly along the circle."""
    order = np.argsort(np.arctan2(modes[:, 1], modes[:, 0]), kind="stable")
    return [int(order[i]) for i in np.linspace(0, len(order) - 1, n).round().astype(int)]


def _figure(width: float, height: float, layout: Literal["constrained"] | None = "constrained") -> Figure:
    """Return a figure without pyplot, whose state all threads share."""
    figure = Figure(figsize=(width, height), layout=layout)
    FigureCanvasAgg(figure)
    return figure
