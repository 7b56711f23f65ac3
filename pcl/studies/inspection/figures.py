"""Plots and sheets of images, as the bytes of PNG files."""

import io
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from pcl.metrics.retrieval import RejectionCurve
from pcl.metrics.undefined import told
from pcl.studies.inspection.findings import Findings

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PIXELS_PER_INCH = 110
_TILE, _LINE = 64, 15  # pixels of an image's side and of a line of text
_GAP, _LEFT = 8, 150  # pixels between images, and for a row's title


@dataclass(frozen=True)
class Theme:
    """Colours of a plot, as Matplotlib takes them."""

    paper: str
    ink: str
    faint: str
    line: str
    other_line: str


LIGHT = Theme("#ffffff", "#1d2430", "#c9ced8", "#2a66b8", "#b4570b")
DARK = Theme("#171b22", "#dfe4ec", "#414a59", "#78adf2", "#f0a35c")


@dataclass(frozen=True)
class Tile:
    """An image of a sheet."""

    image: int
    caption: str  # shown below
    is_marked: bool = False  # whether it is framed


@dataclass(frozen=True)
class Row:
    """A row of a sheet."""

    title: tuple[str, ...]  # lines to its left
    tiles: Sequence[Tile]


def png_of_image(image: Tensor) -> bytes:
    """Return an image (3, H, W) of bytes as a file."""
    file = io.BytesIO()
    Image.fromarray(image.permute(1, 2, 0).contiguous().numpy()).save(file, format="PNG", optimize=True)
    return file.getvalue()


def rejection_plot(curve: RejectionCurve, theme: Theme) -> bytes:
    """Plot Recall@1 against the share of images rejected."""
    figure, axes = _plot(theme)
    kept, recall = curve.kept_share.numpy(), curve.recall.numpy()
    best = np.minimum(1.0, recall[-1] / kept)
    axes.plot(1 - kept, best, color=theme.other_line, linewidth=1.2, linestyle="--", label="misses first, the best")
    axes.plot(1 - kept, recall, color=theme.line, linewidth=1.8, label="least certain first")
    axes.axhline(recall[-1], color=theme.ink, linewidth=1, linestyle=":", label="at random")
    axes.set(xlabel="share of images rejected", ylabel="Recall@1 of the rest", xlim=(0, 1))
    axes.set_title(f"Recall@1 by rejection: area {told(curve.area)}")
    axes.legend(frameon=False, loc="best", labelcolor=theme.ink)
    return _bytes(figure)


def entropy_plot(findings: Findings, theme: Theme) -> bytes:
    """Plot kappa of the images against the entropy of the annotators' votes."""
    title = f"kappa by annotators: rank correlation {told(findings.entropy_rank_corr)}"
    return _scatter(findings.pictures.entropy, findings.kappa, "entropy of the annotators' shares, nats", title, theme)


def crop_plot(findings: Findings, theme: Theme) -> bytes:
    """Plot kappa of the crops against the side that was kept."""
    title = f"kappa by crop: rank correlation {told(findings.crop_rank_corr)}"
    return _scatter(findings.pictures.kept, findings.kappa_of_crops, "side kept by the crop", title, theme)


def sheet(images: Tensor, rows: Sequence[Row]) -> bytes:
    """Draw rows of images, uint8 (N, 3, S, S), with captions below and titles to their left."""
    n_columns = max(len(row.tiles) for row in rows)
    step = _TILE + _LINE + 2 * _GAP
    width, height = _LEFT + n_columns * (_TILE + _GAP) + _GAP, len(rows) * step + _GAP
    canvas = np.full((height, width, 3), 255, dtype=np.uint8)
    figure = Figure(figsize=(width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH), dpi=_PIXELS_PER_INCH)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    for place, row in enumerate(rows):
        top = place * step + _GAP
        for line, text in enumerate(row.title):
            _write(axes, _GAP, top + 8 + line * _LINE, text, ha="left")
        for column, tile in enumerate(row.tiles):
            left = _LEFT + column * (_TILE + _GAP)
            image = Image.fromarray(images[tile.image].permute(1, 2, 0).contiguous().numpy())
            how = Image.Resampling.BOX if image.width > _TILE else Image.Resampling.NEAREST
            canvas[top : top + _TILE, left : left + _TILE] = np.asarray(image.resize((_TILE, _TILE), how))
            _write(axes, left + _TILE / 2, top + _TILE + 9, tile.caption, ha="center")
            if tile.is_marked:
                corner = (left - 2.5, top - 2.5)
                axes.add_patch(Rectangle(corner, _TILE + 4, _TILE + 4, fill=False, edgecolor="#b4570b", linewidth=1.5))
    axes.imshow(canvas, interpolation="nearest", aspect="auto")
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    return _bytes(figure)


def _write(axes: "Axes", x: float, y: float, text: str, ha: str) -> None:
    """Write text literally: a user's class may have dollar signs in its name."""
    shown = text if len(text) <= 22 else f"{text[:21]}…"
    axes.text(x, y, shown, ha=ha, va="center", fontsize=7, color="#1d2430", parse_math=False)


def _scatter(x: Tensor, kappa: Tensor, xlabel: str, title: str, theme: Theme) -> bytes:
    figure, axes = _plot(theme)
    axes.scatter(x.numpy(), kappa.numpy(), s=9, alpha=0.4, linewidths=0, color=theme.line)
    if 0 < 30 * kappa.min() < kappa.max():
        axes.set_yscale("log")
    axes.set(xlabel=xlabel, ylabel="kappa")
    axes.set_title(title)
    return _bytes(figure)


def _plot(theme: Theme) -> tuple[Figure, "Axes"]:
    figure = Figure(figsize=(5.4, 3.9), layout="constrained", facecolor=theme.paper)
    axes: Any = figure.add_subplot(facecolor=theme.paper)
    axes.tick_params(which="both", colors=theme.ink)
    axes.grid(color=theme.faint, linewidth=0.5)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(theme.faint)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(theme.ink)
    return figure, axes


def _bytes(figure: Figure) -> bytes:
    FigureCanvasAgg(figure)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page shows the name anyway
        figure.savefig(file, format="png", dpi=_PIXELS_PER_INCH, metadata={"Software": None})
    return file.getvalue()
