"""Figures of the paper from our runs: curves over a setting, and pictures with a mark."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pcl.studies.paper.published import Measured, Published

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_OURS, _PUBLISHED, _FAINT = "#2a66b8", "#b4570b", "#c9ced8"
_DPI = 110
_STRIP = 24  # pixels
_AXES = {"loss.n_samples": "Monte-Carlo samples K", "encoder.dim": "dimension of the encoder D'", "task.dim": "D"}


@dataclass(frozen=True)
class Curve:
    """A metric along a setting."""

    name: str  # of the metric
    x: Sequence[float]  # values of the setting
    ours: Sequence[Measured]  # at each of them
    published: Sequence[Published | None]  # the same; None where no number is printed


def draw_curves(curves: Sequence[Curve], axis: str, title: str, mark: str, path: Path) -> None:
    """Plot every metric in a panel of its own, with standard errors, ours and what the paper prints in numbers.

    `axis` is the dotted path of the setting, `mark` the mark of reduced results.
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


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  half a second
    from matplotlib.figure import Figure  # noqa: PLC0415  half a second

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure
