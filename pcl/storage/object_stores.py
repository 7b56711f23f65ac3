"""Object stores that pyarrow reaches by an address: parsing of addresses, reading and writing of whole files.

In every kind of store, writes are atomic and a read returns one version.
"""

import hashlib
import os
import re
import uuid
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlsplit

from pcl.storage.credentials import password_of, shown_uri
from pcl.storage.files import first_line

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_SECRET = re.compile(r"secret|token|passw|access_key|account_key|signature|^sig$", re.IGNORECASE)
_WHOLE = ("s3", "gcs", "abfs")  # kinds of stores that replace a file atomically
_MOST_CHANGES = 5  # changes of a file while it is read


def is_address(text: str) -> bool:
    """Return whether a text is an address and not the path of a folder.

    Example:
        >>> is_address("s3://bucket/runs"), is_address("/shared/runs")
        (True, False)
    """
    return _ADDRESS.match(text) is not None


def check_address(uri: str) -> None:
    """Raise a ValueError if an address contains credentials, without repeating them: many people see addresses."""
    parts = urlsplit(shown_uri(uri))
    if password_of(uri) or any(_SECRET.search(key) for key, _ in parse_qsl(parts.query, True)):
        raise ValueError(
            f"A store's address must be without passwords and keys, but that of {parts.scheme}://{parts.hostname} has "
            f"some; give them to every node by its environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
            f"or by a role."
        )


def joined(uri: str, name: str, depth: int = 0) -> str:
    """Return the address of a name in a folder, or in the folder that is `depth` levels up.

    Example:
        >>> joined("s3://bucket/runs?region=eu-west-1", "study")
        's3://bucket/runs/study?region=eu-west-1'
    """
    parts = urlsplit(uri)
    folders = parts.path.rstrip("/").split("/")
    return parts._replace(path="/".join([*folders[: len(folders) - depth], name])).geturl()


def copy_of(uri: str) -> Path:
    """Return the folder of this machine's copy of a store: in PCL_CACHE, or else in the user's cache folder."""
    parts = urlsplit(uri)
    known = re.sub(r"[^A-Za-z0-9.-]+", "-", f"{parts.scheme}-{parts.hostname}")[:60]
    return _caches() / f"{known}-{hashlib.sha256(uri.rstrip('/').encode()).hexdigest()[:12]}"


def _caches() -> Path:
    if given := os.environ.get("PCL_CACHE"):
        return Path(given).absolute()
    from platformdirs import user_cache_path  # noqa: PLC0415  every command imports this module

    return user_cache_path("pcl", appauthor=False)


@lru_cache
def connected(uri: str) -> "tuple[FileSystem, str]":
    """Return pyarrow's file system for an address, and the path in it."""
    from pyarrow.fs import FileSystem  # noqa: PLC0415  a tenth of a second

    if uri.startswith("s3:") and "allow_delayed_open" not in uri:
        uri += ("&" if "?" in uri else "?") + "allow_delayed_open=true"  # a small file is one request, not three
    store, base = FileSystem.from_uri(uri)
    return store, str(base)


def write(store: "FileSystem", path: str, content: bytes) -> None:
    """Replace a file atomically."""
    is_whole = store.type_name in _WHOLE
    target = path if is_whole else f"{path}.{uuid.uuid4().hex[:8]}.tmp"
    if not is_whole:
        store.create_dir(path.rpartition("/")[0], recursive=True)
    with store.open_output_stream(target) as stream:
        stream.write(content)
    if not is_whole:
        store.move(target, path)


def read(store: "FileSystem", path: str) -> bytes:
    """Return a file's content, read in one request so that it is one version; retry if its size has changed."""
    for _ in range(_MOST_CHANGES):
        with store.open_input_file(path) as file:
            content: bytes = file.read(file.size())
        if store.get_file_info(path).size == len(content):
            return content
    raise OSError(f"{path} keeps changing while it is read")


def told(error: BaseException) -> str:
    """Return an error in one line, without the store's request id."""
    return re.sub(r"\s*\(Request ID: [^)]*\)", "", first_line(error)).rstrip(".")
