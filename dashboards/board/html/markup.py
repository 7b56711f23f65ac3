"""HTML and SVG that escape by themselves: text becomes markup only through `tag`."""

import math
import time
from functools import lru_cache
from html import escape as escape_all

from pcl.metrics.undefined import told

MISSING = "\u2013"  # an en dash
MINUS = "\u2212"
_PLAIN, _LARGE = 5e-4, 1e4  # between them, three decimals show a number
_MOST_DECIMALS = 6

_VOID = {"br", "circle", "img", "input", "line", "link", "meta", "path", "rect"}


escape = lru_cache(8192)(escape_all)  # most texts of a long table come again and again


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


Child = object  # Html is taken as it is, None as nothing, an iterable as its members, anything else as text


def join(*children: Child) -> Html:
    """Children one after another.

    Example:
        >>> join("a < b", None, [tag("b", "&")])
        'a &lt; b<b>&amp;</b>'
    """
    parts: list[str] = []
    for child in children:
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(escape(child))
        elif isinstance(child, (list, tuple)):
            parts.append(join(*child))
        elif child is not None:
            parts.append(escape(str(child)))
    return Html("".join(parts))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element. Attributes that are None or False are left out; `class_` is class, other underscores are hyphens.

    Example:
        >>> tag("a", "x", href='"', data_run="1", hidden=True)
        '<a href="&quot;" data-run="1" hidden>x</a>'
    """
    head = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        head += _spelled(key) if value is True else f'{_spelled(key)}="{escape(str(value))}"'
    if name in _VOID:
        return Html(f"<{head}/>" if name in ("circle", "line", "path", "rect") else f"<{head}>")
    return Html(f"<{head}>{join(*children)}</{name}>")


@lru_cache
def _spelled(key: str) -> str:
    return " " + key.rstrip("_").replace("_", "-")


def number(value: float | None) -> str:
    """For people: three decimals, or three digits of what is very large or small; a dash where there is none.

    Example:
        >>> number(0.8213), number(125.02), number(1.2e14), number(float("nan")), number(-5e-05), number(None)
        ('0.821', '125.020', '1.2e+14', 'undefined', '−5e-05', '–')
    """
    if value is None:
        return MISSING
    is_plain = value == 0 or _PLAIN <= abs(value) < _LARGE
    text = told(value, ".3f" if is_plain else ".3g")
    return f"{MINUS}{text[1:]}" if text.startswith("-") else text


def fixed(value: float, error: float) -> str:
    """A number with as many decimals as its error has: three, or those that show the first digit of a small error.

    Example:
        >>> fixed(0.000366, 0.003), fixed(0.82134, 4.1e-05), fixed(-0.0001, 0.02), fixed(0.5, float("nan"))
        ('0.000', '0.82134', '0.000', '0.500')
    """
    if not error > 0:
        return number(value)  # of which it says nothing
    if not max(abs(value), error) < _LARGE or error < 10**-_MOST_DECIMALS:
        return number(value)
    n_decimals = max(3, -math.floor(math.log10(error)))
    text = f"{value:.{n_decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", MINUS)


def plus_minus(value: float | None, error: float) -> str:
    """A mean with its standard error, where there is one.

    Example:
        >>> plus_minus(0.000366, 0.003), plus_minus(0.000366, float("nan")), plus_minus(3e-12, 2e-11)
        ('0.000 ± 0.003', '0.000366', '3e-12 ± 2e-11')
    """
    if value is None or math.isnan(error) or not math.isfinite(value):
        return number(value)
    return f"{fixed(value, error)} ± {fixed(error, error)}"


def duration(seconds: float) -> str:
    """For people.

    Example:
        >>> duration(0), duration(42.24), duration(754), duration(8000), duration(400000)
        ('0', '42 s', '13 min', '2.2 h', '4.6 d')
    """
    if seconds < 0.05:
        return "0"
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, length, above in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172800), ("d", 86400, math.inf)):
        if seconds < above:
            return f"{seconds / length:.1f} {unit}" if length > 60 else f"{seconds / length:.0f} {unit}"
    raise AssertionError


def moment(time_ms: int) -> str:
    """A point in time, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime(time_ms / 1000)) if time_ms else ""
