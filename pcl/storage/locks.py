"""Locks between processes of a machine."""

from pathlib import Path

from filelock import BaseFileLock, FileLock, Timeout

__all__ = ["Timeout", "process_lock"]


def process_lock(path: Path) -> BaseFileLock:
    """Return a lock that one process holds at a time; the kernel releases it when that process ends or is killed.

    Its file stays; the folder is created.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / ".lock"
        >>> with process_lock(path):
        ...     process_lock(path).acquire(blocking=False)
        Traceback (most recent call last):
        filelock._error.Timeout: ...
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A soft lock, filelock's substitute on file systems without flock, would outlive a killed process.
    return FileLock(path, thread_local=False, fallback_to_soft=False)
