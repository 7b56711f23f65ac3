"""Files that are written atomically: readers see the old or the new content, never a part."""

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

_STILL_S = 600.0  # time after the last write until a file's writer counts as dead; network file systems stall long


class Damaged(ValueError):
    """A file's content differs from what was written."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary file to write, which then replaces `path` atomically.

    Readers see the old or the new file, even after a crash or a power cut; two concurrent writers both leave a whole
    file. If writing fails, the old file stays. The folder is created.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
        >>> with replacing(path) as unfinished:
        ...     _ = unfinished.write_text("1 2 3")
        >>> path.read_text()
        '1 2 3'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        yield unfinished
        descriptor = os.open(unfinished, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def clear_leftovers(folder: Path) -> None:
    """Remove temporary files of `replacing` whose process was killed.

    A file written to within the last minutes is left alone: its process may run on another machine.
    """
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            is_old = time.time() - path.stat().st_mtime > _STILL_S
            if is_old and _writer(path) is not None and not is_being_written(path):
                path.unlink()


def is_being_written(path: Path) -> bool:
    """Return whether the process that made a temporary file of `replacing` runs on this machine."""
    writer = _writer(path)
    return writer is not None and _is_alive(writer)


def _writer(path: Path) -> int | None:
    """Return the process in the name of a temporary file, if it is one of `replacing`."""
    number = path.name.split(".")[-3:][0]
    return int(number) if number.isdigit() else None


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def write_json(path: Path, content: Any) -> None:
    """Replace a file with JSON, atomically."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file with text, atomically."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def set_aside(path: Path, why: str) -> Path:
    """Rename an unusable file to a free name beside it that says why, in a word; return the new path.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "numbers.txt"
        >>> _ = path.write_text("1 2")
        >>> set_aside(path, "damaged").name.startswith("numbers.txt.damaged-2")
        True
    """
    name = f"{path.name}.{why}-{time.strftime('%Y%m%d-%H%M%S')}"
    candidates = (path.with_name(f"{name}-{number}" if number > 1 else name) for number in count(1))
    aside = next(candidate for candidate in candidates if not candidate.exists())
    path.rename(aside)
    return aside


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, or the name of its type if the message is empty."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def warn(line: str) -> None:
    """Print a warning to stderr, for stdout may be another program's input."""
    print(line, file=sys.stderr, flush=True)
