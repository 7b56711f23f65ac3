"""Generated parts of Markdown pages, each between two comments."""

import re
from collections.abc import Mapping
from pathlib import Path

_PART = re.compile(r"(<!-- begin (\w+): written by launch/docs\.py -->\n).*?(<!-- end \2 -->)", re.DOTALL)


def pages_of(root: Path) -> list[Path]:
    """Return the README and all pages of the manual in a checkout."""
    return [root / "README.md", *sorted((root / "docs").glob("*.md"))]


def with_parts(page: str, parts: Mapping[str, str]) -> tuple[str, set[str]]:
    """Return a page with its parts filled in, and the names of those that it has.

    Raises:
        ValueError: If the page asks for a part that does not exist.
    """
    found = {name for _, name, _ in _PART.findall(page)}
    if unknown := sorted(found - set(parts)):
        raise ValueError(f"There is no generated part {unknown[0]!r}; there are {', '.join(parts)}.")
    return _PART.sub(lambda match: f"{match[1]}\n{parts[match[2]]}\n\n{match[3]}", page), found


def rendered(root: Path, parts: Mapping[str, str]) -> dict[Path, str]:
    """Return the text of every page with generated parts.

    Raises:
        ValueError: If a part is on no page, or a page asks for an unknown one.
    """
    texts, placed = {}, set()
    for path in pages_of(root):
        text, found = with_parts(path.read_text(encoding="utf-8"), parts)
        if found:
            texts[path] = text
            placed |= found
    if missing := sorted(set(parts) - placed):
        raise ValueError(f"No page has the lines `<!-- begin {missing[0]}: written by launch/docs.py -->` and its end.")
    return texts
