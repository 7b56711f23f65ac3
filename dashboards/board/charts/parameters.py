"""SVG charts of what settings do to a metric: importance, slices and contours."""

import itertools
import math
from collections.abc import Sequence

from dashboards.board.charts.curves import LETTER, WIDTH, Point, frame, rules, svg
from dashboards.board.charts.parallel import Goal, last_part
from dashboards.board.charts.scales import Scale, tick_text
from pcl.presentation.markup import Child, Html, tag
from pcl.presentation.numbers import MISSING, number
from pcl.studies.results.parameter_effects import Axis, Importance, Surface, mean

_MOST_LETTERS = 26  # of an axis's name
_SLICE = 340, 230  # pixels of a slice
_CONTOUR = 500  # pixels, the width of a contour
_N_BANDS = 9  # of a contour; the style sheet has their colours
_MOST_NAMES = 60  # letters of all level names below a slice; with more, only some levels are named


def importance_bars(found: Importance, words: str) -> Html:
    """Draw a bar for the share of every axis, and one for the rest."""
    shares = list(found.shares.items())
    shares += [("interactions, noise", found.rest)] if found.rest else []
    names = [last_part(name, _MOST_LETTERS) for name, _ in shares]
    left, row = round(LETTER * max(map(len, names))) + 14, 26
    x = Scale(0.0, max(share for _, share in shares) or 1.0, left, WIDTH - 56)
    drawn: list[Child] = []
    for i, ((_, share), name) in enumerate(zip(shares, names, strict=True)):
        y, end = 8 + i * row, x(max(share, 0.0))
        kind = "bar rest" if i >= len(found.shares) else "bar"
        drawn += [
            tag("text", name, x=left - 8, y=y + 15, text_anchor="end", class_="label"),
            tag("rect", x=left, y=y + 3, width=round(max(end - left, 1.0), 1), height=row - 9, class_=kind),
            tag("text", f"{100 * share:.0f}%", x=end + 6, y=y + 15),
        ]  # fmt: skip
    return svg(16 + row * len(shares), words, drawn)


def slice_chart(axis: Axis, points: Sequence[Point], goal: Goal, words: str, n_dots: int) -> Html:
    """Draw what trials reached over their values of an axis, and the mean of every level.

    Only the first `n_dots` trials have a dot, the first on top; scales, levels and means use all.
    """
    width, height = _SLICE
    left, right, top, bottom = 66, 14, 12, 44
    y = Scale.over(goal.values, height - bottom, top, is_log=goal.is_log, within=goal.within)
    numbers = axis.numbers if axis.is_range else None
    if numbers is not None:
        known = [value for value in numbers if not math.isnan(value)]
        x = Scale.over(known, left, width - right, is_log=axis.is_log)
        at = [None if math.isnan(value) else x(value) for value in numbers]
        drawn: list[Child] = [frame(x, y, axis.name, goal.name, 5)]
    else:
        x = Scale(0.0, 1.0, left, width - right)
        at = [x(place) for place in axis.places]
        drawn = [rules(y, left, width - right, goal.name), _level_names(axis, x, height - bottom + 16, axis.name)]
        drawn += [
            tag("path", class_="mean", d=f"M{x(place) - 12:g} {y(mean)}h24") for place, mean in _means(axis, goal)
        ]
    drawn += [
        tag("circle", tag("title", f"{point.name}: {number(point.value)}"), class_="dot", cx=place, cy=y(point.value),
            r=3, data_run=point.run)
        for place, point in list(zip(at, points, strict=True))[:n_dots][::-1] if place is not None
    ]  # fmt: skip
    return svg(height, words, drawn, width)


def contour(x: Axis, y: Axis, surface: Surface, points: Sequence[Point], goal: Goal, words: str) -> Html:
    """Draw a metric over two axes in bands, stronger where better, with their scale and dots for the first trials."""
    width, height, left, right, top, bottom = _CONTOUR, 340, 84, 82, 14, 46
    finite = [value for row in surface.values for value in row if not math.isnan(value)]
    scale = Scale.over(finite, 0.0, float(_N_BANDS), is_log=goal.is_log, within=goal.within)
    across, up = Scale(0.0, 1.0, left, width - right), Scale(0.0, 1.0, height - bottom, top)
    cell_x, cell_y = (width - right - left) / surface.n_x, (height - bottom - top) / surface.n_y
    drawn: list[Child] = []
    for j, row in enumerate(surface.values):
        upper = round(height - bottom - (j + 1) * cell_y, 2)
        bands = [None if math.isnan(value) else _band(int(scale(value)), goal) for value in row]
        at = 0
        for band, run in itertools.groupby(bands):
            n = len(list(run))
            if band is not None:
                drawn.append(tag("rect", class_=f"band b{band}", x=round(left + at * cell_x, 2), y=upper,
                                 width=round(n * cell_x, 2), height=round(cell_y, 2)))  # fmt: skip
            at += n
    for point, a, b in list(zip(points, x.places, y.places, strict=False))[::-1]:
        if not math.isnan(a) and not math.isnan(b):
            drawn.append(tag("circle", tag("title", f"{point.name}: {number(point.value)}"), class_="at", r=3.2,
                             cx=across(a), cy=up(b), data_run=point.run))  # fmt: skip
    drawn += [_level_names(x, across, height - bottom + 16, x.name), _side(y, up, left), _key(scale, goal, width)]
    return svg(height, words, drawn, width)


def _band(place: int, goal: Goal) -> int:
    """Return the colour of a place on the scale: stronger where better."""
    band = min(max(place, 0), _N_BANDS - 1)
    return _N_BANDS - 1 - band if goal.is_lower_better else band


def _ends(axis: Axis) -> list[tuple[float, str]]:
    """Return places between 0 and 1 on an axis, and what stands there."""
    if not axis.is_range:
        every = math.ceil(sum(len(level) + 2 for level in axis.levels) / _MOST_NAMES)
        named = [((i + 0.5) / len(axis.levels), level or MISSING) for i, level in enumerate(axis.levels)]
        return named[::every]
    known = [value for value in axis.numbers or () if not math.isnan(value)]
    inside = Scale(min(known), max(known), 0.0, 1000.0, axis.is_log)
    return [(inside(tick) / 1000, tick_text(tick)) for tick in inside.ticks(5)]


def _level_names(axis: Axis, x: Scale, y: float, label: str) -> Html:
    """Draw the names of an axis's values, or the ticks of its range, below a chart."""
    ticks = [tag("text", last_part(text, 18), x=x(place), y=y, text_anchor="middle") for place, text in _ends(axis)]
    middle = (x.start + x.end) / 2
    return tag("g", ticks, tag("text", label, class_="label", x=middle, y=y + 22, text_anchor="middle"), class_="axis")


def _side(axis: Axis, y: Scale, left: float) -> Html:
    """Draw the names of an axis's values, or the ticks of its range, beside a chart."""
    ticks = [tag("text", last_part(t, 9), x=left - 7, y=y(place) + 4, text_anchor="end") for place, t in _ends(axis)]
    place = f"translate(13 {(y.start + y.end) / 2}) rotate(-90)"
    return tag("g", ticks, tag("text", axis.name, class_="label", transform=place, text_anchor="middle"), class_="axis")


def _key(scale: Scale, goal: Goal, width: int) -> Html:
    """Draw the scale of the bands."""
    top, row, at = 36, 26, width - 70
    steps = [top + (_N_BANDS - 1 - band) * row for band in range(_N_BANDS)]
    ticks = [
        tag("text", tick_text(tick), x=at + 20, y=round(top + (_N_BANDS - scale(tick)) * row + 4, 1))
        for tick in scale.ticks(6)
    ]
    bands = [
        tag("rect", class_=f"band b{_band(band, goal)}", x=at, y=y, width=14, height=row)
        for band, y in enumerate(steps)
    ]
    return tag("g", tag("text", goal.name, class_="label", x=at, y=24), bands, ticks, class_="axis")


def _means(axis: Axis, goal: Goal) -> list[tuple[float, float]]:
    """Return the place of every level, and the mean of the trials there."""
    found = []
    for i, level in enumerate(axis.levels):
        values = [value for value, text in zip(goal.values, axis.values, strict=True) if text == level]
        found.append(((i + 0.5) / len(axis.levels), mean(values, is_log=goal.is_log)))
    return found
