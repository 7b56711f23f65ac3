"""Files of tensors that can be made again: damage is told as such, and a damaged one is set aside."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from pcl.storage.files import Damaged, first_line, set_aside, warn

T = TypeVar("T")


@contextmanager
def damage_told(path: Path, what: str, fix: str) -> Iterator[None]:
    """Raise `Damaged`, with the cause and the fix, for whatever fails while a file is read; errors of opening it pass.

    `what` is what the file is otherwise, such as "not an image set".
    """
    path.open("rb").close()  # what the system has against it is not damage, but torch tells both by an OSError
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # a damaged archive fails in as many ways as it has bytes
        reason = first_line(error).rstrip(".")[:120]
        raise Damaged(f"{path} is damaged or {what} ({reason}); {fix}.") from None


def sound(load: Callable[[Path], T], path: Path) -> T | None:
    """Load a file that can be made again; return None where it is damaged, and set it aside."""
    try:
        return load(path)
    except Damaged:
        with suppress(FileNotFoundError):  # another process was faster
            warn(f"{path} is damaged: it is now {set_aside(path, 'damaged').name}, and made again where it is needed.")
    return None
