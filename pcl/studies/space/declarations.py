"""Python files that each declare one object, such as a space: found by name in a folder of ours, or by path."""

import ast
import hashlib
import json
import re
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pcl.config.suggestion import suggestion
from pcl.config.user_files import cause_of, is_path, relative_to
from pcl.storage.installation import installed_folder

T = TypeVar("T")


def check_declared(what: str, name: str) -> None:
    """Raise a ValueError unless a space or an ablation can have this name, which becomes part of file names."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise ValueError(f"{what}'s name must be letters, digits, '_', '-' and '.', but got {name!r}.")


def digest(content: object) -> str:
    """Return sixteen hexadecimal digits of the hash of a declaration's content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def recorded_name(text: str) -> str:
    """Return a name or a path as a study records it: paths are absolute."""
    return str(Path(text).absolute()) if is_path(text) else text


@dataclass(frozen=True)
class Shelf:
    """A collection of files that each declare one object."""

    folder: str  # where files are known by name, which is the object's name
    what: str  # the kind of object in words
    variable: str  # the variable that a file defines
    rooms: tuple[str, ...] = ()  # folders in it that have more of them

    def names(self) -> list[str]:
        """Return the names of the folder's files, without running them."""
        return sorted(self._files())

    def titles(self) -> dict[str, str]:
        """Return the first line of each file's docstring by name, without running them."""
        files = sorted(self._files().items())
        docstrings = {name: ast.get_docstring(ast.parse(path.read_text())) for name, path in files}
        return {name: (text or "").partition("\n")[0] for name, text in docstrings.items()}

    def file(self, text: str) -> str:
        """Return the file of an object by its name, or by the path of a file, without running it.

        Raises:
            ValueError: If there is none; the message has the nearest name.
        """
        if is_path(text):
            if not Path(text).is_file():
                raise ValueError(f"There is no {self.what} file {text}.")
            return text
        if text not in (files := self._files()):
            there = ", ".join(sorted(files))
            hint = suggestion(text, sorted(files))
            raise ValueError(f"Unknown {self.what} {text!r}; there are {there}, or a file's path.{hint}")
        return str(files[text])

    def may_have_own_parts(self, text: str) -> bool:
        """Return whether an object's runs may have parts that a user wrote: its file is the user's, or names one.

        Raises:
            ValueError: If there is no such file.
        """
        file = Path(self.file(text)).resolve()
        is_ours = file in {ours.resolve() for ours in self._files().values()}
        return not is_ours or ".py:" in file.read_text(encoding="utf-8", errors="replace")

    def load(self, text: str, kind: type[T]) -> T:
        """Load an object of a type by its name, or by the path of a file.

        Raises:
            ValueError: If there is none, or it cannot be read; the message has file, line and cause.
        """
        file = self.file(text)
        try:
            with relative_to(file):
                found = runpy.run_path(file)
        except ValueError as error:
            raise ValueError(f"The {self.what} file {file} is not valid: {cause_of(error, file)}") from None
        except (Exception, SystemExit) as error:
            raise ValueError(f"The {self.what} file {file} cannot be read: {cause_of(error, file)}") from None
        declared = found.get(self.variable)
        if not isinstance(declared, kind):
            of_type = f"`{self.variable}` is of the type {type(declared).__name__}"
            got = of_type if self.variable in found else f"there is no `{self.variable}`"
            raise ValueError(
                f"The {self.what} file {file} must define `{self.variable}` of the type {kind.__name__}, but {got}."
            )
        return declared

    def _files(self) -> dict[str, Path]:
        folder = installed_folder(self.folder)
        found = [path for room in (".", *self.rooms) for path in (folder / room).glob("[!_]*.py")]
        return {path.stem: path for path in found}


SPACES = Shelf("search_spaces", "search space", "SPACE", rooms=("hard_labels",))
ABLATIONS = Shelf("search_spaces/ablations", "ablation", "ABLATION", rooms=("images", "profiles"))
