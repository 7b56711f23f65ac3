"""SVG charts: learning curves and parallel coordinates. Colours are the style sheet's."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.charts.scales import Scale, numeric, tick_text, wants_log
from pcl.presentation.markup import Child, Html, tag
from pcl.presentation.numbers import MISSING

_WIDTH = 720
_MOST_NAMES = 12  # values of an axis that stand as words; of more, the axis is a scale
_LETTER = 7.3  # pixels of a letter, of the wider fonts
_MOST_LETTERS = 24  # of an axis's name
_SLANT = 30  # degrees, of names that have no room side by side


@dataclass(frozen=True)
class Line:
    """A curve, or a trial's line through parallel axes."""

    run: str  # which run it is of
    name: str  # for people
    kind: str  # class of the style sheet
    points: Sequence[tuple[float, float]] = ()  # of a curve


def curves(lines: Sequence[Line], words: str, y_label: str) -> Html:
    """Draw values over batches."""
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
    """Draw a line for each trial, the last on top, through the values of its axes to what it reached.

    Every axis, and the objective, has a name and a value for each trial.
    """
    names = [_end(name, _MOST_LETTERS) for name in (*(name for name, _ in axes), goal[0])]
    at, is_slanted = _across(names, max(len(_end(value, 14)) for value in axes[0][1]))
    top = round(26 + _LETTER * max(map(len, names)) * math.sin(math.radians(_SLANT))) if is_slanted else 44
    bottom = top + 270
    n_letters = max(4, int((at[1] - at[0] - 12) / _LETTER))  # of a value, up to the axis before
    places: list[Sequence[float]] = []
    uprights: list[Child] = []
    for index, (_, values) in enumerate(axes):
        y, ticks = _ordinal(values, bottom, top)
        places.append(y)
        short = [(height, _end(text, n_letters if index else 14)) for height, text in ticks]
        uprights.append(_upright(at[index], top, bottom, _title(names[index], at[index], top, is_slanted), short))
    scale = Scale.over(list(goal[1]), bottom, top)
    places.append([scale(value) for value in goal[1]])
    ticks = [(scale(tick), tick_text(tick)) for tick in scale.ticks()]
    uprights.append(_upright(at[-1], top, bottom, _title(names[-1], at[-1], top, is_slanted), ticks, kind="goal"))
    drawn: list[Child] = []
    for index, line in enumerate(lines):
        path = "M" + "L".join(f"{x} {column[index]}" for x, column in zip(at, places, strict=True))
        drawn.append(_group(line, tag("path", d=path)))
    return svg(bottom + 16, words, [*drawn, *uprights])


def _across(names: Sequence[str], n_first: int) -> tuple[list[float], bool]:
    """Return positions of the axes at which all names fit, and whether the names must be slanted.

    To the left of the first axis, its values have up to `n_first` letters.
    """
    wide = [_LETTER * len(name) for name in names]
    n_gaps = len(names) - 1
    left = max(wide[0] / 2, _LETTER * n_first + 7) + 4
    step = (_WIDTH - left - wide[-1] / 2 - 4) / n_gaps
    is_slanted = any((a + b) / 2 + 8 > step for a, b in itertools.pairwise(wide))
    if is_slanted:
        left = _LETTER * n_first + 11
        lean = [width * math.cos(math.radians(_SLANT)) for width in wide]
        step = min((_WIDTH - left - width - 8) / i for i, width in enumerate(lean) if i)
    return [round(left + i * step, 1) for i in range(len(names))], is_slanted


def _title(name: str, at: float, top: float, is_slanted: bool) -> Html:
    if is_slanted:
        return tag("text", name, class_="label", transform=f"translate({at - 4} {top - 10}) rotate({-_SLANT})")
    return tag("text", name, class_="label", x=at, y=top - 18, text_anchor="middle")


def _group(line: Line, *parts: Child) -> Html:
    return tag("g", tag("title", line.name), *parts, class_=f"line {line.kind}", data_run=line.run)


def _ordinal(values: Sequence[str], start: float, end: float) -> tuple[list[float], list[tuple[float, str]]]:
    """Return the heights of an axis's values and its ticks: words evenly apart, or many numbers on a scale.

    What has no value stands at the start, and says nothing of whether the others are numbers.
    """
    known = list(dict.fromkeys(values))
    numbers = numeric([text for text in known if text])
    if numbers is not None and len(known) > _MOST_NAMES:
        first = start + 0.08 * (end - start) if "" in known else start
        scale = Scale.over(numbers, first, end, is_log=wants_log(numbers))
        ticks = [(scale(t), tick_text(t)) for t in scale.ticks()]
        ticks = [(start, MISSING), *ticks] if "" in known else ticks
        return [scale(float(value)) if value else start for value in values], ticks
    known.sort(key=lambda text: (text != "", float(text) if numbers and text else 0.0, text))
    gap = (end - start) / (len(known) + 1)
    height = {text: round(start + (i + 1) * gap, 1) for i, text in enumerate(known)}
    every = math.ceil(len(known) / 14)
    return [height[value] for value in values], [(height[text], text or MISSING) for text in known[::every]]


def _upright(
    at: float, top: float, bottom: float, title: Html, ticks: Sequence[tuple[float, str]], kind: str = ""
) -> Html:
    marks = [
        [
            tag("line", x1=at - 4, x2=at, y1=y, y2=y),
            tag("text", text, x=at - 7, y=y + 4, text_anchor="end", class_="halo"),
        ]
        for y, text in ticks
    ]
    return tag("g", title, tag("line", x1=at, x2=at, y1=top, y2=bottom), marks, class_=f"axis {kind}".strip())


def _frame(x: Scale, y: Scale, x_label: str, y_label: str) -> Html:
    """Draw rules, ticks and the names of both axes."""
    below = y.start + 16
    ticks = [tag("text", tick_text(t), x=x(t), y=below, text_anchor="middle") for t in x.ticks(8)]
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


def _end(text: str, n_most: int) -> str:
    """Shorten a text at its beginning: paths of settings, and values of one setting, begin alike."""
    return text if len(text) <= n_most else f"…{text[1 - n_most :]}"


def svg(height: int, words: str, drawn: Sequence[Child], width: int = _WIDTH) -> Html:
    """Return an SVG element."""
    return tag("svg", *drawn, class_="chart", viewBox=f"0 0 {width} {height}", role="img", aria_label=words)
