"""Names of studies: what they may be, and what one is called that nobody has named."""

import re
import reprlib
import time
import uuid

_LONGEST_FILE_NAME = 255  # of file systems
_LONGEST_NAME = 200  # of a new study: endings of files need some of these
_LONGEST_PART = 80  # of what a default name is made of
_TAKEN_NAMES = ("artifacts", "mlflow.db", "mlflow.db.lock", "reproduce")  # of other things in the storage folder


def check_name(text: str, longest: int = _LONGEST_FILE_NAME) -> str:
    """Return the name of a study; raise a ValueError if it cannot be one."""
    if not text:
        raise ValueError("must not be empty; leave it out")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise ValueError(f"must be letters, digits, '-', '_' and '.', but got {reprlib.repr(text)}")
    if len(text) > longest:
        got = f"{len(text):,}: {reprlib.repr(text)}"
        raise ValueError(f"must have at most {longest} characters, but got {got}")
    return text


def check_new_name(text: str) -> str:
    """Return the name of a study that may be new; raise a ValueError if it cannot be one."""
    if check_name(text, _LONGEST_NAME) in _TAKEN_NAMES:
        raise ValueError(f"must not be {text!r}, as something else in the storage folder is called")
    return text


def default_name(what: str, data: str, scale: str) -> str:
    """Return a name for a new study; names of one space and scale sort by time.

    The images' name is in it, for results on different images are never mixed.
    """
    images = re.sub(r"[^A-Za-z0-9_.]+", "_", data.rpartition("-")[0])
    parts = [what[:_LONGEST_PART], *([images[:_LONGEST_PART]] if images else []), scale]
    return "-".join([*parts, time.strftime("%Y%m%d-%H%M%S"), uuid.uuid4().hex[:6]])
