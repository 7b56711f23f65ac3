"""Figures of the paper, drawn of our runs: curves over a setting, and posteriors on a circle."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pcl.studies.paper.published import Measured, Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS, _PUBLISHED, _FAINT = "#2a66b8", "#b4570b", "#c9ced8"
_DPI = 110
_STRIP = 24  # pixels
_AXES = {"loss.n_samples": "Monte-Carlo samples K", "encoder.dim": "dimension of the encoder D'", "task.dim": "D"}


@dataclass(frozen=True)
class Curve:
    """A metric along a setting.

    Attributes:
        name: Of the metric.
        x: Values of the setting.
        ours: At each of them.
        published: The same; nothing where no number is printed.
    """

    name: str
    x: Sequence[float]
    ours: Sequence[Measured]
    published: Sequence[Published | None]


def draw_curves(curves: Sequence[Curve], axis: str, title: str, mark: str, path: Path) -> None:
    """Plot every metric in a panel of its own, with standard errors, ours and what the paper prints in numbers.

    Args:
        curves: One for each panel.
        axis: Dotted path of the setting.
        title: Stands above.
        mark: What reduced results are marked with.
        path: The file.
    """
    figure = _figure(5.2 * len(curves), 3.9)
    for place, curve in enumerate(curves, start=1):
        axes: Any = figure.add_subplot(1, len(curves), place)
        points = [(x, m.mean, 0.0 if math.isnan(m.error) else m.error)
                  for x, m in zip(curve.x, curve.ours, strict=True) if m.n and math.isfinite(m.mean)]  # fmt: skip
        if points:
            x, y, error = zip(*points, strict=True)
            axes.errorbar(x, y, error, color=_OURS, marker="o", markersize=4, capsize=3, label=f"ours{mark}")
        printed = [(x, p.mean, 0.0 if math.isnan(p.error) else p.error)
                   for x, p in zip(curve.x, curve.published, strict=True) if p is not None]  # fmt: skip
        if printed:
            x, y, error = zip(*printed, strict=True)
            axes.errorbar(x, y, error, color=_PUBLISHED, marker="s", markersize=5, capsize=3, linestyle="none",
                          label="published")  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xticks(curve.x, [f"{value:g}" for value in curve.x], minor=False)
        axes.minorticks_off()
        axes.set(xlabel=_AXES.get(axis, axis), ylabel=curve.name)
        axes.grid(color=_FAINT, linewidth=0.5)
        axes.legend(frameon=False)
    figure.suptitle(f"{title}{mark}")
    figure.savefig(path, dpi=_DPI)


def draw_posteriors(checkpoint: Path, title: str, mark: str, path: Path, n_shown: int = 5) -> None:
    """Densities of a few true and predicted posteriors on the circle, the latter turned onto the truth.

    Args:
        checkpoint: Of a run in two dimensions.
        title: Stands above.
        mark: What reduced results are marked with.
        path: The file.
        n_shown: How many.
    """
    import torch  # noqa: PLC0415
    from scipy.special import i0e  # noqa: PLC0415

    from pcl.training.run import Run  # noqa: PLC0415

    run = Run.restore(checkpoint)
    truths = run.step.task.truths()
    if truths is None:
        raise ValueError(f"{checkpoint} is of a task whose true posteriors nobody knows.")
    with torch.no_grad():
        posterior = run.step.encoder(truths.x)
    mu_true, mu = (tensor[0].double().numpy() for tensor in (truths.mu, posterior.mu))
    left, _, right = np.linalg.svd(mu.T @ mu_true)  # the rotation or reflection that fits best
    places = _apart(mu_true, n_shown)
    angle = np.linspace(0, 2 * np.pi, 721)
    figure = _figure(8.4, 4.3)
    largest = max(float(kappa[0][places].max()) for kappa in (truths.kappa, posterior.kappa))
    panels = (("true", mu_true, truths.kappa[0]), ("predicted, turned", mu @ (left @ right), posterior.kappa[0]))
    for place, (name, modes, kappa) in enumerate(panels, start=1):
        axes: Any = figure.add_subplot(1, 2, place, projection="polar")
        for i in places:
            concentration = float(kappa[i])
            density = np.exp(concentration * (np.cos(angle - math.atan2(modes[i, 1], modes[i, 0])) - 1))
            axes.plot(angle, density / (2 * np.pi * i0e(concentration)), linewidth=1.5)
        axes.set_yticks([])
        axes.set_ylim(0, 1.05 / (2 * np.pi * i0e(largest)))
        axes.set_title(name)
    figure.suptitle(f"{title}, seed {run.seeds[0]}{mark}")
    figure.savefig(path, dpi=_DPI)


def stamped(picture: Path, mark: str, path: Path) -> None:
    """Copy a picture, with the mark of reduced results above it."""
    from PIL import Image, ImageDraw  # noqa: PLC0415  comes with Matplotlib

    with Image.open(picture) as drawn:
        height = _STRIP if mark else 0
        canvas = Image.new("RGB", (drawn.width, drawn.height + height), "white")
        canvas.paste(drawn.convert("RGB"), (0, height))
    if mark:
        ImageDraw.Draw(canvas).text((8, 4), mark.strip(), fill=_PUBLISHED, font_size=14)
    canvas.save(path, format="PNG")


def _apart(modes: "np.ndarray[Any, Any]", n: int) -> list[int]:
    """Points evenly many along the circle, so that they are told apart."""
    order = np.argsort(np.arctan2(modes[:, 1], modes[:, 0]), kind="stable")
    return [int(order[i]) for i in np.linspace(0, len(order) - 1, n).round().astype(int)]


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  half a second
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
