"""User names and passwords in addresses: one rule for all code that shows, refuses or hides them.

They stand before the last "@" of SCHEME://USER:PASSWORD@HOST. A password may contain "/", "?" and "#", unescaped,
though programs then take the user for the host. HOST:PORT/ and a path with an "@" in it are not passwords.
"""

import re


def _rule(ends: str) -> re.Pattern[str]:
    """Return the pattern of credentials in an address without any character of `ends`."""
    with_password = rf"(?!\[)[^/?#@:{ends}]*:(?!\d{{1,5}}[/?#])(?P<password>[^{ends}]*)"
    return re.compile(rf"(?<=://)(?:{with_password}|[^/?#{ends}]*)@", re.ASCII)


_ALONE, _IN_TEXT = _rule(r"\0"), _rule(r"\0\s")  # \0 separates the words of a command line


def shown_uri(uri: str) -> str:
    """Return an address without user and password.

    Example:
        >>> shown_uri("https://me:secret@tracking.example:5000/team")
        'https://tracking.example:5000/team'
    """
    return _ALONE.sub("", uri) if "://" in uri else _ALONE.sub("", f"://{uri}").removeprefix("://")


def password_of(uri: str) -> str:
    """Return the password in an address; empty if there is none."""
    found = _ALONE.search(uri)
    return (found["password"] or "") if found else ""


def without_credentials(text: str) -> str:
    """Return a text without the users and passwords of its addresses."""
    return _IN_TEXT.sub("", text)


def masked(words: bytes) -> bytes:
    """Return a process's command line with a star for each byte of users and passwords."""
    text = words.decode("latin-1")  # one character per byte
    return _ALONE.sub(lambda found: "*" * (len(found[0]) - 1) + "@", text).encode("latin-1")
