"""SVG charts of values over batches and over trials. Colours are the style sheet's."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dashboards.board.charts.scales import UNBOUNDED, Bounds, Scale, spans_decades, tick_text
from pcl.presentation.markup import Child, Html, tag
from pcl.presentation.numbers import number

WIDTH = 640  # of a chart next to another
LETTER = 7.3  # pixels of a letter in the wider fonts: text without room at the edge is cut off


@dataclass(frozen=True)
class Line:
    """A curve, or a trial's line through parallel axes."""

    run: str  # identifier of its run
    name: str  # for people
    kind: str  # class of the style sheet
    points: Sequence[tuple[float, float]] = ()  # of a curve


class Yardstick(NamedTuple):
    """A reference value for others."""

    name: str  # for people
    value: float


def curves(
    lines: Sequence[Line], words: str, y_label: str, within: Bounds = UNBOUNDED, yardstick: Yardstick | None = None
) -> Html:
    """Draw values over batches."""
    height, left, right, top, bottom = 300, 72, 16, 14, 42
    values = [*(p[1] for line in lines for p in line.points), *([yardstick.value] if yardstick else [])]
    x = Scale.over([p[0] for line in lines for p in line.points], left, WIDTH - right, within=(0.0, math.inf))
    y = Scale.over(values, height - bottom, top, is_log=spans_decades(values, within), within=within)
    drawn: list[Child] = [frame(x, y, "batches", y_label, is_count=True), _ruler(yardstick, x, y)]
    for line in lines:
        places = [(x(step), y(value)) for step, value in line.points]
        path = "M" + "L".join(f"{a} {b}" for a, b in places)
        dots = [tag("circle", cx=a, cy=b, r=2.2) for a, b in (places if len(places) < 8 else places[-1:])]
        drawn.append(group(line, tag("path", d=path), *dots))
    return svg(height, words, drawn)


@dataclass(frozen=True)
class Point:
    """A trial in a chart."""

    run: str
    name: str  # for people
    value: float  # NaN where it has none


@dataclass(frozen=True)
class Step:
    """A trial in the history of a study."""

    number: int  # of the trial, in the order in which they began
    point: Point
    best: float  # so far


def history(
    steps: Sequence[Step], words: str, y_label: str, within: Bounds = UNBOUNDED, yardstick: Yardstick | None = None
) -> Html:
    """Draw the value of every trial in the order in which they began, and the best up to each."""
    height, left, right, top, bottom = 300, 72, 16, 14, 42
    finite = [step.point.value for step in steps if math.isfinite(step.point.value)]
    x = Scale.over([1, steps[-1].number], left, WIDTH - right, within=(0.0, math.inf))
    values = [*finite, *([yardstick.value] if yardstick else [])]
    y = Scale.over(values, height - bottom, top, is_log=spans_decades(values, within), within=within)
    shown = [step for step in steps if math.isfinite(step.best)]
    path = "".join(f"H{x(step.number)}V{y(step.best)}" for step in shown[1:])
    line = tag("path", class_="so-far", d=f"M{x(shown[0].number)} {y(shown[0].best)}{path}H{x(steps[-1].number)}")
    dots = [
        tag("circle", tag("title", f"{step.point.name}: {number(step.point.value)}"), class_="dot",
            cx=x(step.number), cy=y(step.point.value), r=3, data_run=step.point.run)
        for step in steps if math.isfinite(step.point.value)
    ]  # fmt: skip
    axes = frame(x, y, "trials, in the order in which they began", y_label, is_count=True)
    return svg(height, words, [axes, _ruler(yardstick, x, y), line, *dots])


def _ruler(yardstick: Yardstick | None, x: Scale, y: Scale) -> Html | None:
    """Draw a line across the chart at a value, with its name above."""
    if yardstick is None:
        return None
    at = y(yardstick.value)
    name = tag("text", yardstick.name, x=x.end - 4, y=at - 5, text_anchor="end", class_="halo")
    return tag("g", tag("line", x1=x.start, x2=x.end, y1=at, y2=at), name, class_="yardstick")


def sparkline(best: Sequence[float], words: str) -> Html | None:
    """Draw the best value up to each trial in a line of text, a step where it changes; None with fewer than two."""
    shown = [(i, value) for i, value in enumerate(best) if math.isfinite(value)]
    if len(shown) < 2:
        return None
    width, height = 110, 26
    x, y = Scale(shown[0][0], shown[-1][0], 3, width - 5), Scale.over([v for _, v in shown], height - 3, 3)
    changes = [after for before, after in itertools.pairwise(shown) if after[1] != before[1]]
    steps = "".join(f"H{x(i)}V{y(value)}" for i, value in changes) + f"H{x(shown[-1][0])}"
    path = tag("path", class_="so-far", d=f"M{x(shown[0][0])} {y(shown[0][1])}{steps}")
    end = tag("circle", class_="dot", cx=x(shown[-1][0]), cy=y(shown[-1][1]), r=2.4)
    return tag("svg", path, end, class_="spark", viewBox=f"0 0 {width} {height}", role="img", aria_label=words)


def group(line: Line, *parts: Child) -> Html:
    """Return the parts of a line, under its name."""
    return tag("g", tag("title", line.name), *parts, class_=f"line {line.kind}", data_run=line.run)


def frame(x: Scale, y: Scale, x_label: str, y_label: str, n_ticks: int = 8, *, is_count: bool = False) -> Html:
    """Draw rules, ticks and the names of both axes; an axis of counts has only whole ticks."""
    below = y.start + 16
    shown = [t for t in x.ticks(n_ticks) if not is_count or t == round(t)]
    ticks = [tag("text", tick_text(t), x=x(t), y=below, text_anchor="middle") for t in shown]
    label = tag("text", x_label, class_="label", x=(x.start + x.end) / 2, y=below + 20, text_anchor="middle")
    return tag("g", rules(y, x.start, x.end, y_label), ticks, label, class_="axis")


def rules(y: Scale, left: float, right: float, label: str) -> Html:
    """Draw lines at the ticks of an upright axis, and its name."""
    parts = [
        [tag("line", class_="rule", x1=left, x2=right, y1=y(t), y2=y(t)),
         tag("text", tick_text(t), x=left - 7, y=y(t) + 4, text_anchor="end")]
        for t in y.ticks()
    ]  # fmt: skip
    middle = (y.start + y.end) / 2
    name = tag("text", label, class_="label", transform=f"translate(13 {middle}) rotate(-90)", text_anchor="middle")
    return tag("g", parts, name, class_="axis")


def svg(height: int, words: str, drawn: Sequence[Child], width: int = WIDTH, kind: str = "") -> Html:
    """Return an SVG element; `kind` is one more class of the style sheet."""
    name = f"chart {kind}".strip()
    return tag("svg", *drawn, class_=name, viewBox=f"0 0 {width} {height}", role="img", aria_label=words)
