"""Files that are there whole or not at all."""

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

_STILL_S = 600.0  # without a write, of a file whose writer is gone; a busy network file system may be still for long


class Damaged(ValueError):
    """A file's content is not what was written."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Another file to write, which then takes the place of this one in one step.

    Whoever reads sees the old or the new, also after a crash or a power cut; two that write at once both end with a
    whole file. Where writing fails, the old one stays.

    Args:
        path: The file; its folder is made.

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
    """Remove what `replacing` had begun to write in a folder when its process was killed.

    A file that was written to within the last minutes is left alone: its process may be another machine's.
    """
    for path in folder.glob(".*.tmp"):
        writer = path.name.split(".")[-3]
        with contextlib.suppress(FileNotFoundError):
            if writer.isdigit() and not _is_alive(int(writer)) and time.time() - path.stat().st_mtime > _STILL_S:
                path.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def write_json(path: Path, content: Any) -> None:
    """Replace a file in one step."""
    write_text(path, json.dumps(content, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a file in one step: whoever reads sees the old or the new, also after a crash."""
    with replacing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def set_aside(path: Path, why: str) -> Path:
    """Move a file that cannot be used to a free name beside it that says so; returns that name.

    Args:
        path: The file.
        why: One word for the name.

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


def warn(line: str) -> None:
    """Tell the user about a file that was set aside; on stderr, for stdout may be a program's input."""
    print(line, file=sys.stderr, flush=True)
