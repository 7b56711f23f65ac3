"""HTML and SVG with automatic escaping: text becomes markup only through `tag`."""

from functools import lru_cache
from html import escape as escape_all

_VOID = {"br", "circle", "img", "input", "line", "link", "meta", "path", "rect", "source"}

escape = lru_cache(8192)(escape_all)  # most texts of a long table repeat


class Html(str):
    """A string that is markup already."""

    __slots__ = ()


Child = object  # Html is taken as it is, None as nothing, an iterable as its members, anything else as text


def join(*children: Child) -> Html:
    """Join children into markup.

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


def lines(*children: Child) -> Html:
    """Join children, each on a line of its own; None is left out."""
    return Html("\n".join(join(child) for child in children if child is not None))


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """Return an element; attributes that are None or False are left out, `class_` is class, other underscores hyphens.

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


def document(title: str, body: Child, *head: Child, **attributes: object) -> str:
    """Return a whole page; `head` is added to the default head, attributes to the body."""
    usual = [
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
    ]
    html = tag("html", tag("head", usual, *head), "\n", tag("body", body, **attributes), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"
