"""Provenance of results: the code's commit, and the hashes of its files and of its pinned requirements."""

import contextlib
import hashlib
import subprocess
from functools import cache
from pathlib import Path

from pcl.storage.installation import INSIDE, PACKAGE

_ROOT = PACKAGE.parent
COMMIT_FILE = "COMMIT"  # has it where the code was copied without its history


def commit() -> str:
    """Return this checkout's commit, with "+" if files have changed since; "unknown" outside of it."""
    with contextlib.suppress(OSError):
        return (_ROOT / COMMIT_FILE).read_text().strip()
    if not (_ROOT / ".git").exists():  # the package is installed, perhaps below the checkout of something else
        return "unknown"
    head = _git("rev-parse", "HEAD")
    if not head:
        return "unknown"
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


@cache
def source_hash(package: Path = PACKAGE) -> str:
    """Return twelve hexadecimal digits of the hash of the package's Python files.

    They identify the code even where it was copied next to an older history, or without one.
    """
    digest = hashlib.sha256()
    files = {path.relative_to(package): path for path in package.rglob("*.py")}
    for name in sorted(name for name in files if name.parts[0] != INSIDE.name):
        digest.update(f"{name.as_posix()}\0{hashlib.sha256(files[name].read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:12]


def lock_hash() -> str:
    """Return twelve hexadecimal digits of requirements.lock's hash; "unknown" without that file."""
    try:
        return hashlib.sha256((_ROOT / "requirements.lock").read_bytes()).hexdigest()[:12]
    except OSError:
        return "unknown"


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(_ROOT), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
