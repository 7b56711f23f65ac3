"""Downloads that resume after an interruption and get their final name only once their checksum is verified."""

import hashlib
import http.client
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_TIMEOUT_S = 20.0  # without a byte
_CHUNK = 1 << 18  # bytes
_TRIES = 10  # each resumes the one before

# Takes the name of a file, bytes so far, and total bytes (0 if the server does not say).
Report = Callable[[str, int, int], None]


class Unreachable(OSError):
    """A server does not answer, refuses, or cuts the connection."""


@dataclass(frozen=True)
class Remote:
    """A file on a server."""

    url: str
    name: str  # local
    algorithm: str  # of the checksum: sha256 or md5
    digest: str  # the checksum in hexadecimal digits

    def matches(self, path: Path) -> bool:
        """Return whether a local file has the checksum of this one."""
        return checksum(path, self.algorithm) == self.digest


def checksum(path: Path, algorithm: str) -> str:
    """Return the checksum of a file's content, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def download(remote: Remote, folder: Path, report: Report) -> Path:
    """Download a file into a folder and return its path; do nothing if it is there with the right checksum.

    An incomplete download is called NAME.part; the next call continues it.

    Raises:
        Unreachable: If the server does not deliver all of it; NAME.part stays.
        ValueError: If the complete download has a wrong checksum; it is deleted.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path, part = folder / remote.name, folder / f"{remote.name}.part"
    if path.is_file() and remote.matches(path):
        return path
    is_resumed = _size(part) > 0
    for _ in range(_TRIES):
        if not _is_whole_after_try(remote, part, report):
            continue
        if remote.matches(part):
            part.replace(path)
            return path
        part.unlink()
        if not is_resumed:
            raise ValueError(
                f"{remote.url} must have the {remote.algorithm} {remote.digest}, but the download does not; "
                "it was deleted. Try again, or get the file elsewhere."
            )
        is_resumed = False  # NAME.part may have been of another version
    raise Unreachable(f"{remote.url} was cut {_TRIES} times; the same command continues where it stopped.")


def _is_whole_after_try(remote: Remote, part: Path, report: Report) -> bool:
    """Download the missing bytes; return False if some came before the connection was cut."""
    start = _size(part)
    headers = {"User-Agent": "pcl", **({"Range": f"bytes={start}-"} if start else {})}
    host = urllib.parse.urlsplit(remote.url).hostname
    arrived = 0
    try:
        with urllib.request.urlopen(urllib.request.Request(remote.url, headers=headers), timeout=_TIMEOUT_S) as answer:
            is_rest = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {start}-")
            start = start if is_rest else 0
            length = answer.headers.get("Content-Length")
            total = start + int(length) if length else 0
            with part.open("ab" if is_rest else "wb") as file:
                while chunk := answer.read(_CHUNK):
                    file.write(chunk)
                    arrived += len(chunk)
                    report(remote.name, start + arrived, total)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 416 and start:  # nothing is missing, or the part is longer than the file
            return True
        raise Unreachable(f"{host} answered {error.code} ({error.reason}) for {remote.url}.") from None
    except urllib.error.URLError as error:
        raise Unreachable(f"{host} cannot be reached ({_reason(error.reason)}).") from None
    except (TimeoutError, ConnectionError, http.client.HTTPException) as error:
        if not arrived:
            raise Unreachable(f"{host} cut the connection ({_reason(error)}).") from None
        return False
    if total and start + arrived < total:
        if not arrived:
            raise Unreachable(f"{host} cut the connection at {start} of {total} bytes of {remote.name}.")
        return False
    return True


def _reason(error: BaseException | str) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0
