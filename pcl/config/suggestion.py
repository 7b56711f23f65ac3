"""The nearest known name, for error messages. Nothing here loads torch."""

import difflib
from collections.abc import Collection


def suggestion(text: str, known: Collection[str]) -> str:
    """Return a sentence, after a space, with the known name that is most like a text; nothing where none is.

    Example:
        >>> suggestion("elkk", ["hib", "elk"])
        " Did you mean 'elk'?"
    """
    near = difflib.get_close_matches(str(text), known, n=1)  # a space may have a number for a path
    return f" Did you mean {near[0]!r}?" if near else ""


def require_choice(name: str, value: str, choices: Collection[str]) -> None:
    """Raise a ValueError that names the nearest choice unless a value is one of them."""
    if value not in choices:
        hint = suggestion(value, choices)
        raise ValueError(f"`{name}` must be one of {', '.join(choices)}, but got {value!r}.{hint}")
