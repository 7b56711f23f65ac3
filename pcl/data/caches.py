"""Files of tensors that can be regenerated: damage is reported as such, and a damaged file is set aside."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pcl.storage.files import Damaged, first_line, set_aside, warn

T = TypeVar("T")


@contextmanager
def damage_told(path: Path, what: str, fix: str) -> Iterator[None]:
    """Turn any error while a file is read into `Damaged`, with cause and fix; errors from opening the file pass.

    `what` is the alternative to damage, such as "not an image set".
    """
    path.open("rb").close()  # the system's refusal is not damage, but torch raises an OSError for both
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # a damaged archive can raise anything
        reason, _, _ = first_line(error).rstrip(".").partition(". ")  # torch goes on with how to trust the file
        raise Damaged(f"{path} is damaged or {what} ({reason[:120]}); {fix}.") from None


def sound(load: Callable[[Path], T], path: Path) -> T | None:
    """Load a file that can be regenerated; if it is damaged, set it aside and return None."""
    try:
        return load(path)
    except Damaged:
        with suppress(FileNotFoundError):  # another process was faster
            warn(f"{path} is damaged: it is now {set_aside(path, 'damaged').name}, and regenerated where it is needed.")
    return None
