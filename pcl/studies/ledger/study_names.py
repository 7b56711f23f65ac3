"""Names of studies: which are allowed, and the default."""

import re
import reprlib
import time
import uuid

_LONGEST_FILE_NAME = 255  # of file systems
_LONGEST_NAME = 200  # of a new study: suffixes of files need the rest
_LONGEST_PART = 80  # of each part of a default name
# Names of other things in the storage folder
_TAKEN_NAMES = ("artifacts", "bench", "mlflow.db", "mlflow.db.lock", "reproduce", "train")


def check_name(text: str, longest: int = _LONGEST_FILE_NAME) -> str:
    """Return the name of a study; raise a ValueError if it cannot be one."""
    if not text:
        raise ValueError("must not be empty; leave it out")
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", text):
        raise ValueError(f"must be letters a to z, digits, '-', '_' and '.', but got {reprlib.repr(text)}")
    if len(text) > longest:
        got = f"{len(text):,}: {reprlib.repr(text)}"
        raise ValueError(f"must have at most {longest} characters, but got {got}")
    return text


def check_new_name(text: str) -> str:
    """Return the name of a study that may be new; raise a ValueError if it cannot be one."""
    if check_name(text, _LONGEST_NAME) in _TAKEN_NAMES:
        raise ValueError(f"must not be {text!r}, which is reserved")
    return text


def default_name(what: str, data: str, scale: str) -> str:
    """Return a name for a new study; names of one space and scale sort by time.

    It contains the images' name: results on different images are never mixed.
    """
    images = re.sub(r"[^A-Za-z0-9_.]+", "_", data.rpartition("-")[0])
    parts = [what[:_LONGEST_PART], *([images[:_LONGEST_PART]] if images else []), scale]
    return "-".join([*parts, time.strftime("%Y%m%d-%H%M%S"), uuid.uuid4().hex[:6]])
