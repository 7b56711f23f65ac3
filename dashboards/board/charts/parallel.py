"""SVG charts: parallel coordinates of trials, whose axes `charts.js` brushes."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.board.charts.curves import LETTER, Line, group, svg
from dashboards.board.charts.scales import UNBOUNDED, Bounds, Scale, spans_decades, tick_text
from pcl.presentation.markup import Child, Html, join, tag
from pcl.presentation.numbers import MISSING
from pcl.studies.results.parameter_effects import Axis

_WIDTH = 960
_MOST_LETTERS = 24  # of an axis's name
_MOST_OF_FIRST = 20  # letters of a value of the first axis, which has room at its left
_SLANT = 30  # degrees, of names that have no room side by side


@dataclass(frozen=True)
class Goal:
    """The metric at the end of the trials' lines."""

    name: str  # for people
    values: Sequence[float]  # one for each trial
    within: Bounds = UNBOUNDED
    is_lower_better: bool = False

    @property
    def is_log(self) -> bool:
        """Return whether its scale is logarithmic."""
        return spans_decades(self.values, self.within)


def parallel(lines: Sequence[Line], axes: Sequence[Axis], goal: Goal, words: str) -> Html:
    """Draw a line for each trial, the last on top, through the values of its axes to what it reached.

    A range is drawn to scale, linear or logarithmic; levels stand evenly apart.
    """
    names = [last_part(name, _MOST_LETTERS) for name in (*(axis.name for axis in axes), goal.name)]
    at, is_slanted = _across(names, max(len(last_part(value, _MOST_OF_FIRST)) for value in axes[0].values))
    top = round(26 + LETTER * max(map(len, names)) * math.sin(math.radians(_SLANT))) if is_slanted else 44
    bottom = top + 270
    n_letters = max(4, int((at[1] - at[0] - 12) / LETTER))  # of a value, up to the axis before
    places: list[Sequence[float]] = []
    uprights: list[Child] = []
    for index, axis in enumerate(axes):
        y, ticks = _along(axis, bottom, top)
        places.append(y)
        short = [(height, last_part(text, n_letters if index else _MOST_OF_FIRST)) for height, text in ticks]
        title = _title(names[index], at[index], top, is_slanted)
        uprights.append(tag("g", title, _upright(axis.name, at[index], top, bottom, short), class_="axis"))
    scale = Scale.over(goal.values, bottom, top, is_log=goal.is_log, within=goal.within)
    places.append([scale(value) for value in goal.values])
    ticks = [(scale(tick), tick_text(tick)) for tick in scale.ticks()]
    title = _title(names[-1], at[-1], top, is_slanted)
    uprights.append(tag("g", title, _upright(goal.name, at[-1], top, bottom, ticks), class_="axis goal"))
    drawn: list[Child] = []
    for index, line in enumerate(lines):
        path = "M" + "L".join(f"{x} {column[index]}" for x, column in zip(at, places, strict=True))
        drawn.append(group(line, tag("path", d=path)))
    return svg(bottom + 16, words, [*drawn, *uprights], _WIDTH, kind="parallel")


def _across(names: Sequence[str], n_first: int) -> tuple[list[float], bool]:
    """Return positions of the axes at which all names fit, and whether the names must be slanted.

    The values of the first axis, to its left, have up to `n_first` letters.
    """
    wide = [LETTER * len(name) for name in names]
    n_gaps = len(names) - 1
    left = max(wide[0] / 2, LETTER * n_first + 7) + 4
    step = (_WIDTH - left - wide[-1] / 2 - 4) / n_gaps
    is_slanted = any((a + b) / 2 + 8 > step for a, b in itertools.pairwise(wide))
    if is_slanted:
        left = LETTER * n_first + 11
        lean = [width * math.cos(math.radians(_SLANT)) for width in wide]
        step = min((_WIDTH - left - width - 8) / i for i, width in enumerate(lean) if i)
    return [round(left + i * step, 1) for i in range(len(names))], is_slanted


def _title(name: str, at: float, top: float, is_slanted: bool) -> Html:
    if is_slanted:
        return tag("text", name, class_="label", transform=f"translate({at - 4} {top - 10}) rotate({-_SLANT})")
    return tag("text", name, class_="label", x=at, y=top - 18, text_anchor="middle")


def _along(axis: Axis, start: float, end: float) -> tuple[list[float], list[tuple[float, str]]]:
    """Return the heights of an axis's values and its ticks; a missing value is at the start."""
    if axis.is_range and axis.numbers is not None:
        is_whole = all(axis.values)
        scale = Scale.over(
            [number for number in axis.numbers if not math.isnan(number)],
            start if is_whole else start + 0.08 * (end - start), end, is_log=axis.is_log,
        )  # fmt: skip
        ticks = [(scale(tick), tick_text(tick)) for tick in scale.ticks()]
        heights = [start if math.isnan(number) else scale(number) for number in axis.numbers]
        return heights, ticks if is_whole else [(start, MISSING), *ticks]
    gap = (end - start) / (len(axis.levels) + 1)
    height = {level: round(start + (i + 1) * gap, 1) for i, level in enumerate(axis.levels)}
    every = math.ceil(len(axis.levels) / 14)
    return [height[value] for value in axis.values], [(height[v], v or MISSING) for v in axis.levels[::every]]


def _upright(name: str, at: float, top: float, bottom: float, ticks: Sequence[tuple[float, str]]) -> Html:
    """Draw an axis with its ticks, and its brush area, which a script finds by the axis's whole name."""
    marks = [
        [
            tag("line", x1=at - 4, x2=at, y1=y, y2=y),
            tag("text", text, x=at - 7, y=y + 4, text_anchor="end", class_="halo"),
        ]
        for y, text in ticks
    ]
    area = tag(
        "rect", class_="brush", x=at - 11, y=top - 4, width=22, height=bottom - top + 8, data_at=at, data_axis=name
    )
    return join(tag("line", x1=at, x2=at, y1=top, y2=bottom), marks, area)


def last_part(text: str, n_most: int) -> str:
    """Shorten a text at its beginning: paths of settings, and values of one setting, begin alike."""
    return text if len(text) <= n_most else f"…{text[1 - n_most :]}"
