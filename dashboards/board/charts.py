"""Drawings as SVG: learning curves and parallel coordinates. Colours are the style sheet's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.markup import MISSING, Child, Html, tag
from dashboards.board.scales import Scale, numeric, tick_text, wants_log

_WIDTH = 720
_MOST_NAMES = 12  # values of an axis that stand as words; of more, the axis is a scale


@dataclass(frozen=True)
class Line:
    """A curve, or a trial's way through parallel axes.

    Attributes:
        run: Which run it is of.
        name: For people.
        kind: Class of the style sheet.
        points: Of a curve.
    """

    run: str
    name: str
    kind: str
    points: Sequence[tuple[float, float]] = ()


def curves(lines: Sequence[Line], words: str, y_label: str) -> Html:
    """Values over batches."""
    height, left, right, top, bottom = 300, 72, 16, 14, 42
    x = Scale.over([p[0] for line in lines for p in line.points], left, _WIDTH - right)
    y = Scale.over([p[1] for line in lines for p in line.points], height - bottom, top)
    drawn: list[Child] = [_frame(x, y, "batches", y_label)]
    for line in lines:
        places = [(x(step), y(value)) for step, value in line.points]
        path = "M" + "L".join(f"{a} {b}" for a, b in places)
        dots = [tag("circle", cx=a, cy=b, r=2.2) for a, b in (places if len(places) < 8 else places[-1:])]
        drawn.append(_group(line, tag("path", d=path), *dots))
    return svg(height, words, drawn)


def parallel(
    lines: Sequence[Line], axes: Sequence[tuple[str, Sequence[str]]], goal: tuple[str, Sequence[float]], words: str
) -> Html:
    """A line for each trial through the values of its axes to what it reached.

    Args:
        lines: Trials; the last is drawn on top.
        axes: Name of each axis, with a value for every trial.
        goal: Name of the objective, with a value for every trial.
        words: What it shows.
    """
    height, top, bottom, side = 330, 44, 16, 100
    step = (_WIDTH - 2 * side) / len(axes)
    places: list[Sequence[float]] = []
    uprights: list[Child] = []
    for index, (name, values) in enumerate(axes):
        y, ticks = _ordinal(values, height - bottom, top)
        places.append(y)
        uprights.append(_upright(round(side + index * step, 1), top, height - bottom, name, ticks))
    scale = Scale.over(list(goal[1]), height - bottom, top)
    places.append([scale(value) for value in goal[1]])
    ticks = [(scale(tick), tick_text(tick)) for tick in scale.ticks()]
    uprights.append(_upright(_WIDTH - side, top, height - bottom, goal[0], ticks, kind="goal"))
    drawn: list[Child] = []
    for index, line in enumerate(lines):
        path = "M" + "L".join(f"{round(side + i * step, 1)} {column[index]}" for i, column in enumerate(places))
        drawn.append(_group(line, tag("path", d=path)))
    return svg(height, words, [*drawn, *uprights])


def _group(line: Line, *parts: Child) -> Html:
    return tag("g", tag("title", line.name), *parts, class_=f"line {line.kind}", data_run=line.run)


def _ordinal(values: Sequence[str], start: float, end: float) -> tuple[list[float], list[tuple[float, str]]]:
    """Heights of an axis's values, and its ticks: words evenly apart, or many numbers on a scale."""
    known = list(dict.fromkeys(values))
    numbers = numeric(known)
    if numbers is not None and len(known) > _MOST_NAMES:
        scale = Scale.over(numbers, start, end, is_log=wants_log(numbers))
        return [scale(float(value)) for value in values], [(scale(t), tick_text(t)) for t in scale.ticks()]
    known.sort(key=(lambda text: (0, float(text), text)) if numbers else (lambda text: (0, 0.0, text)))
    gap = (end - start) / (len(known) + 1)
    height = {text: round(start + (i + 1) * gap, 1) for i, text in enumerate(known)}
    every = math.ceil(len(known) / 14)
    return [height[value] for value in values], [(height[text], text or MISSING) for text in known[::every]]


def _upright(
    at: float, top: float, bottom: float, name: str, ticks: Sequence[tuple[float, str]], kind: str = ""
) -> Html:
    marks = [
        [
            tag("line", x1=at - 4, x2=at, y1=y, y2=y),
            tag("text", _short(text, 14), x=at - 7, y=y + 4, text_anchor="end", class_="halo"),
        ]
        for y, text in ticks
    ]
    title = tag("text", _short(name, 24), class_="label", x=at, y=top - 18, text_anchor="middle")
    return tag("g", title, tag("line", x1=at, x2=at, y1=top, y2=bottom), marks, class_=f"axis {kind}".strip())


def _frame(x: Scale, y: Scale, x_label: str, y_label: str) -> Html:
    """Rules, ticks and the names of both axes."""
    below = y.start + 16
    ticks = [tag("text", tick_text(t), x=x(t), y=below, text_anchor="middle") for t in x.ticks(8)]
    label = tag("text", x_label, class_="label", x=(x.start + x.end) / 2, y=below + 20, text_anchor="middle")
    return tag("g", rules(y, x.start, x.end, y_label), ticks, label, class_="axis")


def rules(y: Scale, left: float, right: float, label: str) -> Html:
    """Lines at the ticks of an upright axis, and its name."""
    parts = [
        [tag("line", class_="rule", x1=left, x2=right, y1=y(t), y2=y(t)),
         tag("text", tick_text(t), x=left - 7, y=y(t) + 4, text_anchor="end")]
        for t in y.ticks()
    ]  # fmt: skip
    middle = (y.start + y.end) / 2
    name = tag("text", label, class_="label", transform=f"translate(13 {middle}) rotate(-90)", text_anchor="middle")
    return tag("g", parts, name, class_="axis")


def _short(text: str, n_most: int) -> str:
    return text if len(text) <= n_most else text[: n_most - 1] + "…"


def svg(height: int, words: str, drawn: Sequence[Child], width: int = _WIDTH) -> Html:
    """A drawing."""
    return tag("svg", *drawn, class_="chart", viewBox=f"0 0 {width} {height}", role="img", aria_label=words)
