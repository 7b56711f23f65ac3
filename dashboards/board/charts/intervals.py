"""SVG charts: means of variants with their intervals, in panels that share the variants."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.charts.curves import LETTER, rules, svg
from dashboards.board.charts.scales import UNBOUNDED, Bounds, Scale, numeric, spans_decades, tick_text
from pcl.presentation.markup import Child, Html, tag
from pcl.presentation.numbers import MISSING, number
from pcl.studies.results.parameter_effects import is_wide

_HALF, _WIDE = 460, 960
_NARROW_LETTER, _LEAST_GAP = 6.5, 18.0  # pixels: of a letter of most fonts, and from one mark to the next
_ROW, _MOST_LETTERS = 20, 56  # pixels of a variant's row, and letters of its name that fit


@dataclass(frozen=True)
class Mark:
    """A value with an interval."""

    name: str  # of its variant
    mean: float
    low: float  # lower end of the interval; NaN for none
    high: float
    points: Sequence[float] = ()  # single values, drawn faintly
    kind: str = ""  # class of the style sheet


@dataclass(frozen=True)
class Panel:
    """Values with intervals of some variants."""

    marks: Sequence[Mark]  # of the variants, in their order
    label: str  # of the values' axis
    words: str
    zero: float | None = None  # where a line stands
    within: Bounds = UNBOUNDED  # of the values: an interval may reach beyond, and is cut there

    def scale(self, start: float, end: float) -> Scale:
        """Return the scale of the values."""
        values = [v for m in self.marks for v in (m.mean, m.low, m.high, *m.points) if math.isfinite(v)]
        inner = [v for m in self.marks for v in (m.mean, *m.points) if math.isfinite(v)]
        if self.zero is None and spans_decades(
            inner, self.within
        ):  # an interval may reach below zero, and is cut at the axis's end
            positive = [max(value, min(inner)) for value in values]
            return Scale.over(positive, start, end, is_log=True, within=self.within)
        values = [min(max(value, self.within[0]), self.within[1]) for value in values]
        return Scale.over(values if self.zero is None else [*values, self.zero], start, end, within=self.within)


def intervals(panels: Sequence[Panel], axis: str) -> Html:
    """Draw panels of the same variants: side by side where the names fit below, or else a row for each variant."""
    places = _places([mark.name for mark in panels[0].marks], 82, _HALF - 24)
    if places is None:
        return tag("div", _rows(panels, axis), class_="rows")
    at, is_to_scale = places
    label = axis if is_to_scale else f"{axis} (evenly spaced)"
    return tag("div", [_columns(panel, at, label) for panel in panels], class_="pair")


def _columns(panel: Panel, at: Sequence[float], x_label: str) -> Html:
    """Draw variants from left to right; joined where they are numbers."""
    height, left, right, top, bottom = 280, 72, 14, 14, 46
    y = panel.scale(height - bottom, top)
    drawn: list[Child] = [rules(y, left, _HALF - right, panel.label)]
    if panel.zero is not None:
        drawn.append(tag("line", class_="zero", x1=left, x2=_HALF - right, y1=y(panel.zero), y2=y(panel.zero)))
    names = [mark.name for mark in panel.marks]
    drawn += [
        tag("text", name or MISSING, x=place, y=height - bottom + 16, text_anchor="middle")
        for place, name in zip(at, names, strict=True)
    ]
    drawn.append(tag("text", x_label, class_="label", x=(left + _HALF - right) / 2, y=height - 6, text_anchor="middle"))
    shown = [(place, mark) for place, mark in zip(at, panel.marks, strict=True) if math.isfinite(mark.mean)]
    if numeric(names) is not None and len(shown) > 1:
        path = "M" + "L".join(f"{place} {y(mark.mean)}" for place, mark in sorted(shown, key=lambda pair: pair[0]))
        drawn.append(tag("path", class_="trend", d=path))
    drawn += [_mark(place, mark, y, is_upright=True) for place, mark in shown]
    return svg(height, panel.words, drawn, _HALF)


def _rows(panels: Sequence[Panel], axis: str) -> Html:
    """Draw variants from top to bottom, with the panels side by side."""
    names = [_shortened(mark.name, _MOST_LETTERS) for mark in panels[0].marks]
    left, top, gap = round(LETTER * max(map(len, [*names, axis]))) + 16, 40, 24
    bottom = top + _ROW * len(names)
    width = (_WIDE - left) / len(panels)
    at = [top + (i + 0.5) * _ROW for i in range(len(names))]
    drawn: list[Child] = [
        tag("g", [tag("line", class_="rule", x1=0, x2=_WIDE, y1=y + _ROW / 2, y2=y + _ROW / 2) for y in at],
            [tag("text", name or MISSING, x=left - 10, y=y + 4, text_anchor="end")
             for name, y in zip(names, at, strict=True)], class_="axis"),
        tag("text", axis, class_="label", x=left - 10, y=14, text_anchor="end"),
    ]  # fmt: skip
    for i, panel in enumerate(panels):
        start = left + i * width
        x = panel.scale(start + 10, start + width - gap)
        ticks = [
            [tag("line", x1=x(t), x2=x(t), y1=top, y2=bottom),
             [tag("text", tick_text(t), x=x(t), y=y, text_anchor="middle") for y in (top - 6, bottom + 16)]]
            for t in x.ticks(5)
        ]  # fmt: skip
        title = tag("text", panel.label, class_="label", x=(x.start + x.end) / 2, y=14, text_anchor="middle")
        drawn.append(tag("g", ticks, title, class_="axis"))
        if panel.zero is not None:
            drawn.append(tag("line", class_="zero", x1=x(panel.zero), x2=x(panel.zero), y1=top, y2=bottom))
        shown = [(y, mark) for y, mark in zip(at, panel.marks, strict=True) if math.isfinite(mark.mean)]
        drawn += [_mark(y, mark, x, is_upright=False) for y, mark in shown]
    return svg(bottom + 24, "; ".join(panel.words for panel in panels), drawn, _WIDE)


def _places(names: Sequence[str], start: float, end: float) -> tuple[list[float], bool] | None:
    """Return positions at which names and marks do not overlap, and whether they are to scale.

    Numbers are placed on a linear or logarithmic scale, or else evenly spaced in their order, as words always are.
    Returns None if they do not fit either way.
    """
    numbers = numeric(names)
    found: list[tuple[list[float], bool]] = []
    if numbers is not None:
        is_log = [True] if is_wide(numbers) else [False, True] if min(numbers) > 0 else [False]
        scales = [Scale.over(numbers, start, end, is_log=log) for log in is_log]
        found = [([scale(value) for value in numbers], True) for scale in scales]
    order = sorted(range(len(names)), key=(numbers or range(len(names))).__getitem__)
    step = (end - start) / len(names)
    evenly = {index: round(start + (rank + 0.5) * step, 1) for rank, index in enumerate(order)}
    found.append(([evenly[index] for index in range(len(names))], numbers is None))
    return next((places for places in found if _is_apart(names, places[0])), None)


def _is_apart(names: Sequence[str], at: Sequence[float]) -> bool:
    placed = sorted(zip(at, names, strict=True))
    return all(
        right - left >= max(_LEAST_GAP, _NARROW_LETTER * (1 + (len(a) + len(b)) / 2))
        for (left, a), (right, b) in itertools.pairwise(placed)
    )


def _mark(at: float, mark: Mark, scale: Scale, *, is_upright: bool) -> Html:
    """Draw a value, its interval and single values along a vertical scale, or a horizontal one."""
    value = scale(mark.mean)
    if is_upright:
        seeds = [tag("circle", class_="seed", cx=at + 7, cy=scale(point), r=2) for point in mark.points]
        dot = tag("circle", cx=at, cy=value, r=4)
    else:
        seeds = [tag("circle", class_="seed", cx=scale(point), cy=at + 6, r=1.6) for point in mark.points]
        dot = tag("circle", cx=value, cy=at, r=3.5)
    bar = None
    if math.isfinite(mark.low):
        low, high = scale.clipped(mark.low), scale.clipped(mark.high)
        upright = f"M{at} {low}V{high}M{at - 5} {low}h10M{at - 5} {high}h10"
        lying = f"M{low} {at}H{high}M{low} {at - 4}v8M{high} {at - 4}v8"
        bar = tag("path", d=upright if is_upright else lying)
    return tag("g", tag("title", _told(mark)), seeds, bar, dot, class_=f"mark {mark.kind}".strip())


def _told(mark: Mark) -> str:
    interval = f" ({number(mark.low)} to {number(mark.high)})" if math.isfinite(mark.low) else ""
    return f"{mark.name}: {number(mark.mean)}{interval}"


def _shortened(text: str, n_most: int) -> str:
    """Shorten a name in its middle: names of variants begin and end alike."""
    half = (n_most - 1) // 2
    return text if len(text) <= n_most else f"{text[:half]}…{text[-half:]}"
