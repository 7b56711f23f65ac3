"""Drawings as SVG: learning curves, parallel coordinates, and means with intervals. Colours are the style sheet's."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.markup import MISSING, Child, Html, number, tag
from dashboards.board.scales import Scale, numeric, tick_text, wants_log

_WIDTH, _HALF = 720, 460
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


@dataclass(frozen=True)
class Mark:
    """A value with an interval.

    Attributes:
        name: Where it stands on the horizontal axis.
        mean: Its height.
        low: Lower end of the interval; NaN for none.
        high: Upper end.
        points: Single values, drawn faintly.
        kind: Class of the style sheet.
    """

    name: str
    mean: float
    low: float
    high: float
    points: Sequence[float] = ()
    kind: str = ""


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
    return _svg(height, words, drawn)


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
    return _svg(height, words, [*drawn, *uprights])


def intervals(marks: Sequence[Mark], words: str, x_label: str, y_label: str, zero: float | None = None) -> Html:
    """Means with intervals over variants; over numbers on a scale, and joined, where all names are numbers."""
    texts = [mark.name for mark in marks]
    numbers = numeric(texts)
    is_slanted = numbers is None and (max(map(len, texts), default=0) * len(texts) > 56)
    height, left, right, top, bottom = (340, 72, 14, 14, 130) if is_slanted else (280, 72, 14, 14, 46)
    heights = [v for m in marks for v in (m.mean, m.low, m.high, *m.points) if math.isfinite(v)]
    y = Scale.over(heights if zero is None else [*heights, zero], height - bottom, top)
    if numbers is not None:
        x = Scale.over(numbers, left + 10, _HALF - right - 10, is_log=wants_log(numbers))
        at = [x(value) for value in numbers]
    else:
        width = (_HALF - left - right) / max(1, len(marks))
        at = [round(left + (i + 0.5) * width, 1) for i in range(len(marks))]
    drawn: list[Child] = [_rules(y, left, _HALF - right, y_label)]
    if zero is not None:
        drawn.append(tag("line", class_="zero", x1=left, x2=_HALF - right, y1=y(zero), y2=y(zero)))
    drawn += [_name(place, height - bottom + 16, text, is_slanted) for place, text in zip(at, texts, strict=True)]
    if not is_slanted:
        drawn.append(
            tag("text", x_label, class_="label", x=(left + _HALF - right) / 2, y=height - 6, text_anchor="middle")
        )
    shown = [(place, mark) for place, mark in zip(at, marks, strict=True) if math.isfinite(mark.mean)]
    if numbers is not None and len(shown) > 1:
        path = "M" + "L".join(f"{place} {y(mark.mean)}" for place, mark in sorted(shown, key=lambda pair: pair[0]))
        drawn.append(tag("path", class_="trend", d=path))
    drawn += [_mark(place, mark, y) for place, mark in shown]
    return _svg(height, words, drawn, _HALF)


def _group(line: Line, *parts: Child) -> Html:
    return tag("g", tag("title", line.name), *parts, class_=f"line {line.kind}", data_run=line.run)


def _mark(at: float, mark: Mark, y: Scale) -> Html:
    seeds = [tag("circle", class_="seed", cx=at + 7, cy=y(value), r=2) for value in mark.points]
    told = f"{mark.name}: {number(mark.mean)}"
    bar: list[Child] = []
    if math.isfinite(mark.low):
        told += f" ({number(mark.low)} to {number(mark.high)})"
        low, high = y(mark.low), y(mark.high)
        bar = [tag("path", d=f"M{at} {low}V{high}M{at - 5} {low}h10M{at - 5} {high}h10")]
    dot = tag("circle", cx=at, cy=y(mark.mean), r=4)
    return tag("g", tag("title", told), seeds, bar, dot, class_=f"mark {mark.kind}".strip())


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
    return tag("g", _rules(y, x.start, x.end, y_label), ticks, label, class_="axis")


def _rules(y: Scale, left: float, right: float, label: str) -> Html:
    parts = [
        [tag("line", class_="rule", x1=left, x2=right, y1=y(t), y2=y(t)),
         tag("text", tick_text(t), x=left - 7, y=y(t) + 4, text_anchor="end")]
        for t in y.ticks()
    ]  # fmt: skip
    middle = (y.start + y.end) / 2
    name = tag("text", label, class_="label", transform=f"translate(13 {middle}) rotate(-90)", text_anchor="middle")
    return tag("g", parts, name, class_="axis")


def _name(at: float, y: float, text: str, is_slanted: bool) -> Html:
    if is_slanted:
        return tag("text", _short(text, 24), transform=f"translate({at + 4} {y - 4}) rotate(-38)", text_anchor="end")
    return tag("text", _short(text, 24), x=at, y=y, text_anchor="middle")


def _short(text: str, n_most: int) -> str:
    return text if len(text) <= n_most else text[: n_most - 1] + "…"


def _svg(height: int, words: str, drawn: Sequence[Child], width: int = _WIDTH) -> Html:
    return tag("svg", *drawn, class_="chart", viewBox=f"0 0 {width} {height}", role="img", aria_label=words)
