"""The nearest known name, for error messages. Nothing here loads torch."""

import difflib
from collections.abc import Collection


def suggestion(text: str, known: Collection[str]) -> str:
    """Return a space and a question that suggests the known name closest to a text, or "" if none is close.

    Example:
        >>> suggestion("elkk", ["hib", "elk"])
        " Did you mean 'elk'?"
    """
    near = difflib.get_close_matches(str(text), known, n=1)  # a search space may have a number in place of a path
    return f" Did you mean {near[0]!r}?" if near else ""


def require_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise a ValueError that suggests the nearest choice unless the value is one of them."""
    if value not in choices:
        hint = suggestion(value, choices)
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, but got {value!r}.{hint}")
