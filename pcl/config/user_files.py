"""A user's own loss, encoder or experiment: `FILE.py:NAME`, a file outside the package, loaded by its path.

In a configuration the name is `/PATH/FILE.py:NAME#DIGEST`. The digest covers the file's content, not its path or the
files that it imports: an edited file makes another run, a moved file does not. A relative path in a search space is
looked up in the space's folder first, then in the working directory.

Code runs only if its file was named in this process: on the command line, in a search space, or in `PCL_USER_FILES`
(paths separated by colons). Being named in a checkpoint or a YAML file is not enough.
"""

import ast
import hashlib
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

VARIABLE = "PCL_USER_FILES"
KEYS = ("loss_name", "task_name", "encoder_name")  # keys of a flat configuration that may name a file
_FORM = re.compile(r"(?P<file>.+\.py):(?P<name>[A-Za-z_]\w*)(?:#(?P<digest>[0-9a-f]{16}))?")
_folder = ContextVar("_folder", default=Path())  # relative paths are looked for here, then in the working directory
_named: dict[str, str] = {}  # NAME#DIGEST -> the file named in this process


class Reference(NamedTuple):
    """An object defined in a user's file."""

    file: str  # absolute
    name: str
    digest: str  # of the content; empty until the file is read

    def __str__(self) -> str:
        return f"{self.file}:{self.identity}"

    @property
    def identity(self) -> str:
        """Name and digest, which do not depend on where the file is."""
        return f"{self.name}#{self.digest}"

    @classmethod
    def of(cls, text: str) -> "Reference | None":
        """Read the text form; return None where the text is a plain name."""
        found = _FORM.fullmatch(text)
        if found is None:
            return None
        return cls(str(_place(found["file"])), found["name"], found["digest"] or "")


@contextmanager
def relative_to(file: str) -> Iterator[None]:
    """Look for relative paths in the folder of a file, such as a search space, before the working directory."""
    token = _folder.set(Path(file).absolute().parent)
    try:
        yield
    finally:
        _folder.reset(token)


def mentioned(file: str) -> dict[str, Path]:
    """Return the users' files that a Python file names by relative path, keyed by that path. The file is not run.

    Raises:
        ValueError: If it is not valid Python.
    """
    try:
        nodes = list(ast.walk(ast.parse(Path(file).read_bytes(), file)))
    except (SyntaxError, ValueError) as error:
        raise ValueError(f"The file {file} cannot be read: {cause_of(error, file)}") from None
    texts = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    with relative_to(file):
        files = {found["file"]: _place(found["file"]) for found in map(_FORM.fullmatch, texts) if found}
    return {name: path for name, path in files.items() if not os.path.isabs(os.path.expanduser(name))}


def is_path(text: str) -> bool:
    """Return whether a text is a file's path and not a built-in name."""
    return text.endswith(".py") or "/" in text


def named(text: str) -> str:
    """Return the full form of a name given by a user or a user's code; a plain name stays unchanged.

    From now on, records read in this process may name the same file.
    """
    reference = Reference.of(text)
    if reference is None:
        return text
    if not reference.digest:
        reference = reference._replace(digest=_digest(_content(reference.file)))
    _named[reference.identity] = reference.file
    return str(reference)


def recorded(text: str) -> str:
    """Return a record's name with the file's current path; raise a ValueError if the file was not named here."""
    reference = Reference.of(text)
    if reference is None:
        return text
    for file in filter(None, os.environ.get(VARIABLE, "").split(os.pathsep)):
        named(f"{file}:{reference.name}")
    if reference.identity in _named:
        return str(reference._replace(file=_named[reference.identity]))
    if _digest(_content(reference.file)) != reference.digest:
        raise _changed(reference)
    raise ValueError(
        f"This configuration runs the code of {reference.file}, which was not named here; if you trust it, "
        f"set {VARIABLE}={reference.file}."
    )


def trust(flat: Mapping[str, Any]) -> None:
    """Trust the files that a flat configuration names, because another process of the same study has sent it."""
    for key in KEYS:
        named(str(flat.get(key, "")))


def identity_of(text: str) -> str:
    """Return a name that does not depend on where a user's file is; built-in names stay unchanged."""
    reference = Reference.of(text)
    return text if reference is None else reference.identity


def portable(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Return a flat configuration whose names do not depend on where users' files are."""
    return {**flat, **{key: identity_of(str(flat[key])) for key in KEYS if key in flat}}


def short(text: str) -> str:
    """Return a short name for people and file names: for a user's file, the name of the object in it.

    Example:
        >>> short("elk"), short("/home/me/mine.py:Margin#0123456789abcdef")
        ('elk', 'Margin')
    """
    reference = Reference.of(text)
    return text if reference is None else reference.name


def load(reference: Reference) -> object:
    """Return the object that a full name stands for; raise a ValueError if the file is missing, changed or faulty."""
    module_name = f"pcl_user_file_{reference.digest}"
    module = sys.modules.get(module_name)
    if module is None:
        content = _content(reference.file)
        if _digest(content) != reference.digest:
            raise _changed(reference)
        module = sys.modules[module_name] = ModuleType(module_name)  # before it runs, as it may refer to itself
        module.__file__ = reference.file
        try:
            exec(compile(content, reference.file, "exec"), vars(module))
        except (Exception, SystemExit) as error:
            del sys.modules[module_name]
            raise ValueError(f"The file {reference.file} cannot be read: {cause_of(error, reference.file)}") from None
    if not hasattr(module, reference.name):
        raise ValueError(f"The file {reference.file} must define `{reference.name}`, but does not.")
    found: object = getattr(module, reference.name)
    return found


def cause_of(error: BaseException, file: str) -> str:
    """Return one line that says why a user's file cannot be run, with the line number if the cause is in the file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    if isinstance(error, SyntaxError) and error.filename == file:
        lines.append(error.lineno)
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    text = (said.strip().splitlines() or [""])[0]
    cause = text if isinstance(error, ValueError) and text else f"{type(error).__name__}: {text}".rstrip(": ") + "."
    return f"line {lines[-1]}: {cause}" if lines else cause


def _place(text: str) -> Path:
    """Return the absolute path of a named file."""
    path = Path(os.path.expanduser(text))  # pathlib's raises a RuntimeError for an unknown user
    beside = _folder.get() / path
    return (beside if beside.is_file() else path).absolute()


def _changed(reference: Reference) -> ValueError:
    return ValueError(
        f"The file {reference.file} has changed since this configuration was made from its `{reference.name}`; restore "
        f"it, or start again with the changed file."
    )


def _content(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise ValueError(f"The file {file} cannot be read: {error.strerror}.") from None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
